#include "comm/nccl/process_run.h"

#include <exception>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/nccl/coordinator.h"
#include "comm/nccl/process_rank.h"

namespace sumonce::nccl {
namespace {

absl::Status BodyOf(const RankBody& body, ProcessRank& process, int rank, int size) {
  ProcessCommunicator world(process, kWorldGroup, rank, size);
  try {
    return body(world);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("rank ", rank, " threw: ", error.what()));
  } catch (...) {
    return absl::InternalError(
        absl::StrCat("rank ", rank, " threw something that is no std::exception"));
  }
}

}  // namespace

absl::Status RunInProcesses(Api api, const PlaneOptions& plane, TcpProcessGroup& processes,
                            int device, const RunOptions& options, const RankBody& body) {
  const int ranks = options.world_size;
  if (ranks < 1 || ranks > processes.size()) {
    return absl::ResourceExhaustedError(absl::StrCat(plane.transport, ": a world of ", ranks,
                                                     " ranks, and ", processes.size(),
                                                     " processes; start one for each rank"));
  }
  if (processes.rank() >= ranks) return absl::OkStatus();
  std::thread coordinator;
  if (processes.rank() == 0) {
    coordinator = std::thread([&] { Coordinate(api, plane, processes, options); });
  }
  absl::Status status;
  {
    ProcessRank process(api, plane, processes, device);
    status = process.AskedStatus(Writer().Number(static_cast<int64_t>(Ask::kBegin)));
    if (status.ok()) {
      const absl::Status mine = BodyOf(body, process, processes.rank(), ranks);
      status = process.Finish(mine);
    }
  }
  if (coordinator.joinable()) coordinator.join();
  return status;
}

}  // namespace sumonce::nccl

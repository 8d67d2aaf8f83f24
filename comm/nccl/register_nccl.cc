#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/nccl/load.h"
#include "comm/nccl/nccl_plane.h"
#include "comm/nccl/process_run.h"
#include "comm/tcp_process_group.h"
#include "comm/transport.h"

namespace sumonce {
namespace {

// The processes of this one's launcher, joined on first use; they stay so until it ends.
absl::StatusOr<ProcessGroup*> LaunchedProcesses() {
  static const auto& group = *new absl::StatusOr<std::unique_ptr<TcpProcessGroup>>([] {
    const absl::StatusOr<TcpOptions> options = TcpOptionsFromEnvironment();
    if (!options.ok()) return absl::StatusOr<std::unique_ptr<TcpProcessGroup>>(options.status());
    return TcpProcessGroup::Create(*options);
  }());
  if (!group.ok()) return group.status();
  return group->get();
}

bool SharesGpus() {
  const char* shares = std::getenv("SUMONCE_NCCL_SHARE_GPU");
  return shares != nullptr && std::string(shares) == "1";
}

nccl::PlaneOptions NcclOptions(const RunOptions& options) {
  return {.transport = "nccl", .native_sums = options.native_sums};
}

absl::Status RunInThisProcess(const RunOptions& options, const RankBody& body) {
  SUMONCE_RETURN_IF_ERROR(nccl::Probe());
  SUMONCE_ASSIGN_OR_RETURN(const nccl::Api api, nccl::Load());
  return nccl::RunOnDevices(api, NcclOptions(options), options, body);
}

absl::Status RunInLaunchedProcesses(const RunOptions& options, const RankBody& body) {
  SUMONCE_RETURN_IF_ERROR(nccl::Probe());
  SUMONCE_ASSIGN_OR_RETURN(const nccl::Api api, nccl::Load());
  SUMONCE_ASSIGN_OR_RETURN(ProcessGroup* const processes, LaunchedProcesses());
  auto& group = static_cast<TcpProcessGroup&>(*processes);
  int device = group.options().local_rank;
  // One GPU per process, unless several are asked to share: NCCL wants them to look like other
  // machines then (a NCCL_HOSTID each), and does not promise anything.
  if (SharesGpus()) device %= nccl::DeviceCount();
  return nccl::RunInProcesses(api, NcclOptions(options), group, device, options, body);
}

// What a process finds wrong alone it finds before it joins the others.
absl::Status ProbeLaunched() {
  SUMONCE_RETURN_IF_ERROR(nccl::Probe());
  const absl::StatusOr<TcpOptions> options = TcpOptionsFromEnvironment();
  if (!options.ok()) return absl::UnavailableError(options.status().message());
  const int devices = nccl::DeviceCount();
  if (SharesGpus() || options->local_rank < devices) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the process of rank ", options->rank, " is number ", options->local_rank,
                   " (from 0) of its machine, which has ", devices, devices == 1 ? " GPU" : " GPUs",
                   "; start one for each GPU"));
}

int LaunchedCapacity() {
  const absl::StatusOr<TcpOptions> options = TcpOptionsFromEnvironment();
  return options.ok() ? options->size : 0;
}

}  // namespace

// Under a launcher of several processes each drives one GPU; else this one drives all.
void RegisterNccl(TransportRegistry& registry) {
  const absl::StatusOr<TcpOptions> launched = TcpOptionsFromEnvironment();
  const bool in_processes =
      absl::IsInvalidArgument(launched.status()) || (launched.ok() && launched->size > 1);
  Transport transport{.name = "nccl", .max_world_size = 1024};
  if (in_processes) {
    transport.probe = ProbeLaunched;
    transport.run = RunInLaunchedProcesses;
    transport.capacity = LaunchedCapacity;
    transport.processes = LaunchedProcesses;
  } else {
    transport.probe = nccl::Probe;
    transport.run = RunInThisProcess;
    transport.capacity = nccl::DeviceCount;
    transport.executors = {ExecutorKind::kThreads, ExecutorKind::kFibers};
  }
  registry.Add(std::move(transport));
}

}  // namespace sumonce

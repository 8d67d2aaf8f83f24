#include <algorithm>
#include <thread>
#include <vector>

#include "base/status.h"
#include "comm/nccl/fake/fake_runtime.h"
#include "comm/nccl/nccl_plane.h"
#include "comm/nccl/process_run.h"
#include "comm/tcp_process_group.h"
#include "comm/transport.h"

namespace sumonce {
namespace {

// How the devices were used is looked at however the run ended.
absl::Status ButFirst(const absl::Status& verdict, const absl::Status& status) {
  return verdict.ok() ? status : verdict;
}

absl::Status RunOnFakeDevices(const RunOptions& options, const RankBody& body) {
  nccl::FakeRuntime runtime({.devices = std::max(1, options.world_size)});
  const absl::Status status = nccl::RunOnDevices(
      runtime.api(), {.transport = "fake_nccl", .native_sums = options.native_sums}, options, body);
  return ButFirst(runtime.Verdict(), status);
}

// A thread stands for each process: it shares nothing with the others but the devices and TCP.
absl::Status RunOnFakeProcesses(const RunOptions& options, const RankBody& body) {
  const int ranks = std::max(1, options.world_size);
  nccl::FakeRuntime runtime({.devices = ranks, .real_time = true});
  SUMONCE_ASSIGN_OR_RETURN(Socket listener, Socket::Listen(0, /*this_machine_only=*/true));
  const int port = listener.port();
  std::vector<Socket> listeners(ranks);
  listeners[0] = std::move(listener);
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&, rank, port] {
      auto group =
          TcpProcessGroup::Create({.rank = rank, .size = ranks, .local_rank = rank, .port = port},
                                  std::move(listeners[rank]));
      statuses[rank] = group.ok() ? nccl::RunInProcesses(runtime.api(),
                                                         {.transport = "fake_nccl_tcp",
                                                          .native_sums = options.native_sums},
                                                         **group, rank, options, body)
                                  : group.status();
    });
  }
  for (std::thread& process : processes) process.join();
  for (const absl::Status& status : statuses) {
    if (status != statuses[0]) return absl::InternalError("processes end with other statuses");
  }
  return ButFirst(runtime.Verdict(), statuses[0]);
}

}  // namespace

// The NCCL transport on devices that are not there, as one process and as one for each rank: its
// every call and rule can be seen on any machine. Slow, and no evidence about GPUs.
void RegisterFakeNccl(TransportRegistry& registry) {
  registry.Add({.name = "fake_nccl",
                .probe = [] { return absl::OkStatus(); },
                .run = RunOnFakeDevices,
                .max_world_size = 64,
                .executors = {ExecutorKind::kFibers, ExecutorKind::kThreads}});
  registry.Add({.name = "fake_nccl_tcp",
                .probe = [] { return absl::OkStatus(); },
                .run = RunOnFakeProcesses,
                .max_world_size = 8,
                .executors = {ExecutorKind::kThreads}});
}

}  // namespace sumonce

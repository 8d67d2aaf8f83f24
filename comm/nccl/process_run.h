// A run with one rank in each process (torchrun, mpirun), over devices.
#pragma once

#include "comm/nccl/nccl_plane.h"
#include "comm/tcp_process_group.h"

namespace sumonce::nccl {

// Transport::run, collective over the processes: each runs the body for its own rank, on `device`;
// those beyond the world return at once. All of the world return the same status.
// ResourceExhausted, on all: fewer processes than ranks.
absl::Status RunInProcesses(Api api, const PlaneOptions& plane, TcpProcessGroup& processes,
                            int device, const RunOptions& options, const RankBody& body);

}  // namespace sumonce::nccl

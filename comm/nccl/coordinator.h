// Process 0's part of a run with one rank in each process (comm/nccl/process_protocol.h): a proxy
// for every rank, on a thread each, whose calls meet in memory, and a data plane that orders the
// processes to move what they carry.
#pragma once

#include "comm/nccl/nccl_plane.h"
#include "comm/tcp_process_group.h"

namespace sumonce::nccl {

// Returns when the run is over and every process has been told how. A process that ends, or is
// silent for longer than the time limit, is a lost rank.
void Coordinate(Api api, const PlaneOptions& plane, TcpProcessGroup& processes,
                const RunOptions& options);

}  // namespace sumonce::nccl

// The MPI of this process: the module that holds it is loaded when first asked for, MPI starts with
// the first use of the processes, and ends when the program exits.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/transport.h"

namespace sumonce {

// The functions of Transport "mpi".
absl::Status ProbeMpi();
absl::StatusOr<ProcessGroup*> MpiProcessGroup();
absl::Status RunOverMpi(const RunOptions& options, const RankBody& body);

}  // namespace sumonce

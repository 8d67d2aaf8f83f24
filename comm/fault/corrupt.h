// What a rank sends instead of its input, under the faults that change it.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/fault.h"

namespace sumonce {

// A copy of the call's input, changed as `fault` says. `rank` in the group; `earlier`: what the
// matching call before sent, null if there was none. InvalidArgument as FaultInjector::Wrap says.
absl::StatusOr<std::vector<char>> Corrupted(const CallFault& fault, const Call& call, int rank,
                                            const std::vector<char>* earlier);

}  // namespace sumonce

// The executor that runs all ranks on the calling thread, one at a time (contract:
// comm/executor.h).
#pragma once

#include <functional>

#include "comm/executor.h"

namespace sumonce {

absl::Status RunOnFibers(const ExecutorOptions& options, int ranks,
                         const std::function<absl::Status(int, Scheduler&)>& body);

}  // namespace sumonce

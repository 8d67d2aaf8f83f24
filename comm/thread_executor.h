// The executor with one thread per rank (contract: comm/executor.h).
#pragma once

#include <functional>

#include "comm/executor.h"

namespace sumonce {

absl::Status RunOnThreads(const ExecutorOptions& options, int ranks,
                          const std::function<absl::Status(int, Scheduler&)>& body);

}  // namespace sumonce

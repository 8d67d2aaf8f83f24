#include "comm/executor.h"

#include "absl/strings/str_cat.h"
#include "comm/fiber_executor.h"
#include "comm/thread_executor.h"

namespace sumonce {

std::string_view Name(ExecutorKind kind) {
  return kind == ExecutorKind::kFibers ? "fibers" : "threads";
}

absl::Status RunOnExecutor(const ExecutorOptions& options, int ranks,
                           const std::function<absl::Status(int, Scheduler&)>& body) {
  constexpr int64_t kMinStackBytes = 16 * 1024;
  if (ranks < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("executor: ", ranks, " ranks, expected 1 or more"));
  if (options.kind == ExecutorKind::kThreads) return RunOnThreads(options, ranks, body);
  if (options.stack_bytes < kMinStackBytes) {
    return absl::InvalidArgumentError(absl::StrCat("executor: stack of ", options.stack_bytes,
                                                   " bytes, expected at least ", kMinStackBytes));
  }
  return RunOnFibers(options, ranks, body);
}

}  // namespace sumonce

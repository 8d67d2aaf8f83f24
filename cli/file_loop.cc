#include "cli/file_loop.h"

#include <chrono>

#include "cli/exit_code.h"
#include "cli/outputs.h"

namespace sumonce {

int ReportFiles(const std::vector<std::string>& paths, const FileLoop& loop, Context& context) {
  auto outputs = Outputs::Open(loop.output, loop.proof_only, context.io);
  if (!outputs.ok()) return ComplainOf(outputs.status(), context);
  (*outputs)->Begin(static_cast<int>(paths.size()));
  Summary summary;
  for (const std::string& path : paths) {
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<ScenarioResult> result = loop.judge(path);
    if (!result.ok()) return ComplainOf(result.status(), context);
    const std::chrono::duration<double, std::micro> elapsed =
        std::chrono::steady_clock::now() - start;
    result->elapsed_us = elapsed.count();
    summary.Count(*result);
    (*outputs)->OnResult(*result);
  }
  (*outputs)->End(summary);
  if (const absl::Status status = (*outputs)->Commit(); !status.ok())
    return ComplainOf(status, context);
  return ExitCodeOf(summary);
}

int ComplainOf(const absl::Status& status, Context& context) {
  context.io.err << status.message() << '\n';
  return kUsage;
}

}  // namespace sumonce

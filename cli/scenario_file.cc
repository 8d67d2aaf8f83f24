#include "cli/scenario_file.h"

#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"
#include "cli/file_loop.h"
#include "cli/memory_limit.h"
#include "cli/output_file.h"
#include "cli/report_loop.h"

namespace sumonce {

int WriteAndRun(const std::string& text, const std::string& path, const OutputFlags& output,
                Context& context) {
  auto file = OutputFile::Open(path, output.force);
  if (!file.ok()) return ComplainOf(file.status(), context);
  (*file)->stream() << text;
  if (const absl::Status status = (*file)->Commit(); !status.ok())
    return ComplainOf(status, context);
  SelectionFlags selection;
  selection.paths = {path};
  const auto judge = [&](const SelectedRun& run) -> std::vector<ScenarioResult> {
    const std::string large = WhyTooLarge(run.scenario, DefaultMemoryLimit());
    if (!large.empty()) return {SkippedResult(run.scenario, run.scenario.name, large)};
    std::vector<ScenarioResult> results = context.engine.run(run.scenario, RunnerOptions());
    for (ScenarioResult& result : results) {
      result.reproduce =
          absl::StrCat(ShellQuoted(context.program), " run ", ShellQuoted(run.scenario.file));
    }
    return results;
  };
  return ReportAll(Select(selection), {.output = output, .proof_only = false, .judge = judge},
                   context);
}

}  // namespace sumonce

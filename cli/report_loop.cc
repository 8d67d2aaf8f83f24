#include "cli/report_loop.h"

#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/outputs.h"
#include "cli/progress.h"

namespace sumonce {
namespace {

int CannotWrite(const absl::Status& status, Context& context) {
  context.io.err << "sumonce: error: " << status.message() << '\n';
  return kUsage;
}

// A report may overwrite a report, never what it reports on.
absl::Status CheckNoInput(const Selection& selection, const OutputFlags& output) {
  for (const FormatSpec& spec : output.formats) {
    for (const SelectedRun& run : selection.runs) {
      std::error_code ignored;
      if (!spec.path.empty() && std::filesystem::equivalent(spec.path, run.scenario.file, ignored))
        return absl::InvalidArgumentError(
            absl::StrCat(spec.path, ": is a scenario of this run; give the report another name"));
    }
  }
  return absl::OkStatus();
}

Summary Judge(const Selection& selection, const ReportLoop& loop, Reporter& reporter,
              Context& context) {
  const InterruptWatch watch;
  ProgressLine progress(context.io.err, context.io.err_is_terminal);
  Summary summary{.captures = loop.captures};
  size_t done = 0;
  for (const SelectedRun& run : selection.runs) {
    if (watch.Interrupted()) break;
    progress.Show(++done, selection.runs.size(), run.scenario.name);
    const std::vector<ScenarioResult> results = loop.judge(run);
    progress.Clear();
    for (const ScenarioResult& result : results) {
      summary.Count(result);
      reporter.OnResult(result);
    }
  }
  summary.interrupted = watch.Interrupted();
  return summary;
}

}  // namespace

int ReportAll(const Selection& selection, const ReportLoop& loop, Context& context) {
  if (const int status = Complain(selection, context); status != kAsExpected) return status;
  if (const absl::Status status = CheckNoInput(selection, loop.output); !status.ok())
    return CannotWrite(status, context);
  auto outputs = Outputs::Open(loop.output, loop.proof_only, context.io);
  if (!outputs.ok()) return CannotWrite(outputs.status(), context);
  (*outputs)->Begin(static_cast<int>(selection.runs.size()));
  const Summary summary = Judge(selection, loop, **outputs, context);
  (*outputs)->End(summary);
  if (const absl::Status status = (*outputs)->Commit(); !status.ok())
    return CannotWrite(status, context);
  return ExitCodeOf(summary);
}

std::string ShellQuoted(const std::string& word) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=@%+-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace sumonce

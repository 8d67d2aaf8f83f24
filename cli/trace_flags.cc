#include "cli/trace_flags.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/exit_code.h"
#include "cli/file_loop.h"
#include "cli/report_loop.h"
#include "trace/prove_traces.h"

namespace sumonce {
namespace {

std::string ReplayLine(const std::string& dir, const Context& context) {
  return absl::StrCat(ShellQuoted(context.program), " prove --trace ", ShellQuoted(dir));
}

int Explain(const TraceFlags& flags, Context& context) {
  for (const std::string& dir : flags.dirs) {
    const auto set = trace::ReadTraces(dir);
    if (!set.ok()) return ComplainOf(set.status(), context);
    const auto lines = trace::ExplainTraces(*set, flags.explain);
    if (!lines.ok()) return ComplainOf(lines.status(), context);
    context.io.out << set->name << ": " << flags.explain << '\n';
    for (const std::string& line : *lines) context.io.out << "  " << line << '\n';
  }
  return kAsExpected;
}

}  // namespace

void AddTrace(CLI::App& app, TraceFlags& flags) {
  app.add_option("--trace", flags.dirs,
                 "Prove a recorded step instead: folders of traces (docs/TRACE.md)")
      ->type_name("DIR");
  app.add_option("--explain", flags.explain,
                 "The operations where the state of this parameter's gradient changed")
      ->type_name("PARAM");
}

int ProveTraceDirs(const TraceFlags& flags, const OutputFlags& output, Context& context) {
  if (!flags.explain.empty()) return Explain(flags, context);
  const auto judge = [&](const std::string& dir) -> absl::StatusOr<ScenarioResult> {
    SUMONCE_ASSIGN_OR_RETURN(const trace::TraceSet set, trace::ReadTraces(dir));
    ScenarioResult result = trace::JudgeTraces(set, dir);
    result.reproduce = ReplayLine(dir, context);
    return result;
  };
  return ReportFiles(flags.dirs, {.output = output, .proof_only = true, .judge = judge}, context);
}

}  // namespace sumonce

#include "cli/trace_flags.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/exit_code.h"
#include "cli/outputs.h"
#include "cli/report_loop.h"
#include "trace/prove_traces.h"

namespace sumonce {
namespace {

int ComplainOf(const absl::Status& status, Context& context) {
  context.io.err << status.message() << '\n';
  return kUsage;
}

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
  auto outputs = Outputs::Open(output, true, context.io);
  if (!outputs.ok()) return ComplainOf(outputs.status(), context);
  (*outputs)->Begin(static_cast<int>(flags.dirs.size()));
  Summary summary;
  for (const std::string& dir : flags.dirs) {
    const auto start = std::chrono::steady_clock::now();
    const auto set = trace::ReadTraces(dir);
    if (!set.ok()) return ComplainOf(set.status(), context);
    ScenarioResult result = trace::JudgeTraces(*set, dir);
    result.reproduce = ReplayLine(dir, context);
    const std::chrono::duration<double, std::micro> elapsed =
        std::chrono::steady_clock::now() - start;
    result.elapsed_us = elapsed.count();
    summary.Count(result);
    (*outputs)->OnResult(result);
  }
  (*outputs)->End(summary);
  if (const absl::Status status = (*outputs)->Commit(); !status.ok())
    return ComplainOf(status, context);
  return ExitCodeOf(summary);
}

}  // namespace sumonce

// sumonce prove: the static verdict, from the structure alone and for every size of the axes; of
// scenarios, of a model's config.json at its real size, or of a recorded step of the user's own
// program.
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/config_selection.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/report_loop.h"
#include "cli/selection.h"
#include "cli/trace_flags.h"
#include "cli/verb.h"
#include "verify/explain.h"

namespace sumonce {
namespace {

struct ProveFlags {
  SelectionFlags selection;
  OutputFlags output;
  TraceFlags trace;
  ConfigFlags configs;
};

// The chain of one parameter in each scenario as written.
int ExplainRuns(const Selection& selection, const std::string& param, Context& context) {
  if (const int status = Complain(selection, context); status != kAsExpected) return status;
  for (const SelectedRun& run : selection.runs) {
    const auto lines = ExplainChain(Prove(run.scenario, run.scenario.defects), param);
    if (!lines.ok()) {
      context.io.err << "sumonce prove --explain: " << run.scenario.name << ": "
                     << lines.status().message() << '\n';
      return kUsage;
    }
    context.io.out << run.scenario.name << ": " << param << '\n';
    for (const std::string& line : *lines) context.io.out << "  " << line << '\n';
  }
  return kAsExpected;
}

int Prove(const ProveFlags& flags, Context& context) {
  if (!flags.trace.dirs.empty()) return ProveTraceDirs(flags.trace, flags.output, context);
  const auto judge = [&](const SelectedRun& run) {
    std::vector<ScenarioResult> results = context.engine.prove(run.scenario);
    for (ScenarioResult& result : results) {
      result.reproduce = absl::StrCat(ShellQuoted(context.program), " prove ",
                                      ShellQuoted(run.scenario.file), OverrideFlags(run.overrides));
    }
    return results;
  };
  SelectionFlags paths = flags.selection;
  std::vector<std::string> mistakes;
  std::vector<SelectedRun> configs =
      TakeConfigs(flags.configs, flags.output.force, paths, mistakes, context.io.err);
  Selection selection;
  if (!paths.paths.empty() || flags.selection.paths.empty()) selection = Select(paths);
  selection.mistakes.insert(selection.mistakes.begin(), mistakes.begin(), mistakes.end());
  for (SelectedRun& run : configs) selection.runs.push_back(std::move(run));
  if (!flags.trace.explain.empty()) return ExplainRuns(selection, flags.trace.explain, context);
  return ReportAll(selection, {.output = flags.output, .proof_only = true, .judge = judge},
                   context);
}

}  // namespace

VerbAction DeclareProve(CLI::App& app) {
  auto flags = std::make_shared<ProveFlags>();
  AddPaths(app, flags->selection);
  AddFilter(app, flags->selection);
  AddAxes(app, flags->selection);
  AddAt(app, flags->selection);
  AddOutput(app, flags->output);
  AddTrace(app, flags->trace);
  AddConfigs(app, flags->configs);
  return [flags](Context& context) { return Prove(*flags, context); };
}

}  // namespace sumonce

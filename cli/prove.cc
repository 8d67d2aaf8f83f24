// sumonce prove: the static verdict, from the structure alone and for every size of the axes; of
// scenarios, or of a recorded step of the user's own program.
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/flags.h"
#include "cli/report_loop.h"
#include "cli/selection.h"
#include "cli/trace_flags.h"
#include "cli/verb.h"

namespace sumonce {
namespace {

struct ProveFlags {
  SelectionFlags selection;
  OutputFlags output;
  TraceFlags trace;
};

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
  return ReportAll(Select(flags.selection),
                   {.output = flags.output, .proof_only = true, .judge = judge}, context);
}

}  // namespace

VerbAction DeclareProve(CLI::App& app) {
  auto flags = std::make_shared<ProveFlags>();
  AddPaths(app, flags->selection);
  AddFilter(app, flags->selection);
  AddAxes(app, flags->selection);
  AddOutput(app, flags->output);
  AddTrace(app, flags->trace);
  return [flags](Context& context) { return Prove(*flags, context); };
}

}  // namespace sumonce

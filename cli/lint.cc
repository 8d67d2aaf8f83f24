// sumonce lint: a real job's parameters before its first step, from a manifest.
#include "capture/lint/lint.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "capture/lint/scenario_text.h"
#include "cli/file_loop.h"
#include "cli/report_loop.h"
#include "cli/scenario_file.h"
#include "cli/verb.h"
#include "trace/prove_traces.h"

namespace sumonce {
namespace {

struct LintFlags {
  std::vector<std::string> manifests;
  std::string trace;
  std::string module_map;
  std::string to_scenario;
  bool strict = false;
  OutputFlags output;
};

std::string ReplayLine(const LintFlags& flags, const std::string& path, const Context& context) {
  std::string line = absl::StrCat(ShellQuoted(context.program), " lint ", ShellQuoted(path));
  if (!flags.trace.empty()) absl::StrAppend(&line, " --trace ", ShellQuoted(flags.trace));
  if (!flags.module_map.empty())
    absl::StrAppend(&line, " --module-map ", ShellQuoted(flags.module_map));
  return flags.strict ? line + " --strict" : line;
}

// The classes that a recorded step of the same model proves.
absl::StatusOr<std::map<std::string, GradClass>> TracedClasses(const std::string& dir) {
  SUMONCE_ASSIGN_OR_RETURN(const trace::TraceSet set, trace::ReadTraces(dir));
  const trace::TraceProof proof = trace::ProveTraces(set);
  if (!proof.refused.empty())
    return absl::InvalidArgumentError(absl::StrCat(dir, ": proves nothing: ", proof.refused));
  std::map<std::string, GradClass> classes;
  for (const auto& [name, statement] : proof.proofs) {
    if (statement.grad_class != GradClass::kUnknown) classes[name] = statement.grad_class;
  }
  return classes;
}

// The smallest scenario that shows what was found, written and run.
int WriteScenario(const LintFlags& flags, const lint::LintOptions& options, Context& context) {
  if (flags.manifests.size() != 1) {
    return ComplainOf(absl::InvalidArgumentError(absl::StrCat(
                          "--to-scenario: ", flags.manifests.size(), " manifests; name one")),
                      context);
  }
  const auto set = capture::LoadManifestSet(flags.manifests[0]);
  if (!set.ok()) return ComplainOf(set.status(), context);
  for (const std::string& fault : set->faults) context.io.err << "sumonce lint: " << fault << '\n';
  const auto statements = lint::StateParameters(set->manifests, options.state);
  if (!statements.ok()) return ComplainOf(statements.status(), context);
  const auto text =
      lint::ScenarioText(*statements, lint::FaultsOf(*statements), flags.manifests[0]);
  if (!text.ok()) return ComplainOf(text.status(), context);
  return WriteAndRun(*text, flags.to_scenario, flags.output, context);
}

int Lint(const LintFlags& flags, Context& context) {
  lint::LintOptions options{.state = {}, .strict = flags.strict};
  if (!flags.module_map.empty()) {
    auto map = lint::ReadModuleMap(flags.module_map);
    if (!map.ok()) return ComplainOf(map.status(), context);
    options.state.module_map = *std::move(map);
  }
  if (!flags.trace.empty()) {
    auto classes = TracedClasses(flags.trace);
    if (!classes.ok()) return ComplainOf(classes.status(), context);
    options.state.traced = *std::move(classes);
  }
  if (!flags.to_scenario.empty()) return WriteScenario(flags, options, context);
  const auto judge = [&](const std::string& path) -> absl::StatusOr<ScenarioResult> {
    SUMONCE_ASSIGN_OR_RETURN(ScenarioResult result, lint::Lint(path, options));
    result.reproduce = ReplayLine(flags, path, context);
    return result;
  };
  return ReportFiles(flags.manifests, {.output = flags.output, .judge = judge}, context);
}

}  // namespace

VerbAction DeclareLint(CLI::App& app) {
  auto flags = std::make_shared<LintFlags>();
  app.add_option("manifests", flags->manifests,
                 "Captures, one rank's file of one, or JSON with the same keys")
      ->type_name("MANIFEST")
      ->required();
  app.add_option("--trace", flags->trace,
                 "A recorded step of the same model: its classes come before the modules'")
      ->type_name("DIR");
  app.add_option("--module-map", flags->module_map,
                 "What the job's own modules are (textproto, proto/module_map.proto)")
      ->type_name("FILE");
  app.add_option("--to-scenario", flags->to_scenario,
                 "Write the smallest scenario that shows the faults, and run it")
      ->type_name("FILE");
  app.add_flag("--strict", flags->strict, "Parameters of which nothing can be said are a failure");
  AddOutput(app, flags->output);
  return [flags](Context& context) { return Lint(*flags, context); };
}

}  // namespace sumonce

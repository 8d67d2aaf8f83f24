// sumonce audit: the dumps of a real run, rank by rank.
#include "capture/audit/audit.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "capture/audit/result.h"
#include "capture/lint/class_hints.h"
#include "capture/lint/scenario_text.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/report_loop.h"
#include "cli/scenario_file.h"
#include "cli/verb.h"

namespace sumonce {
namespace {

struct AuditFlags {
  std::vector<std::string> dirs;
  std::string against;
  bool no_modules = false;
  bool strict = false;
  std::string explain;
  std::string to_scenario;
  std::optional<double> rtol;
  OutputFlags output;
};

int Complain(const absl::Status& status, Context& context) {
  context.io.err << "sumonce audit: " << FromAbsl(status.message()) << '\n';
  return kUsage;
}

std::string ReplayLine(const std::string& dir, const AuditFlags& flags, const Context& context) {
  std::string line = absl::StrCat(ShellQuoted(context.program), " audit ", ShellQuoted(dir));
  if (!flags.against.empty()) absl::StrAppend(&line, " --against ", ShellQuoted(flags.against));
  if (flags.no_modules) absl::StrAppend(&line, " --no-modules");
  if (flags.rtol) absl::StrAppend(&line, " --rtol ", *flags.rtol);
  if (flags.strict) absl::StrAppend(&line, " --strict");
  return line;
}

// The manifests of the first step: what the modules say of the classes, before any number.
absl::StatusOr<lint::Statements> StatementsOf(const std::string& dir) {
  SUMONCE_ASSIGN_OR_RETURN(const capture::ManifestSet set, capture::LoadManifestSet(dir));
  return lint::StateParameters(set.manifests, {});
}

// What the modules say, or nothing: what cannot be read is the audit's to say.
std::optional<lint::Statements> ModulesOf(const std::string& dir) {
  absl::StatusOr<lint::Statements> statements = StatementsOf(dir);
  if (!statements.ok()) return std::nullopt;
  return *std::move(statements);
}

absl::StatusOr<capture::Audit> AuditOf(const std::string& dir, const AuditFlags& flags,
                                       const std::optional<lint::Statements>& modules) {
  capture::ClassHints hints;
  if (modules) hints = lint::HintsOf(*modules);
  return capture::AuditCapture(dir, {.hints = flags.no_modules ? nullptr : &hints,
                                     .unused_hints = flags.no_modules ? &hints : nullptr,
                                     .rtol = flags.rtol,
                                     .against = flags.against,
                                     .explain = flags.explain});
}

// The cure that the proof of the modules gives a parameter, where it sees the same fault.
void AddCures(const lint::Statements& modules, ScenarioResult& result) {
  for (Finding& finding : result.findings) {
    const auto statement = modules.params.find(finding.verdict.param);
    if (statement == modules.params.end() || !statement->second.cure) continue;
    if (statement->second.proof.mechanism != finding.verdict.mechanism) continue;
    finding.cure = CureTrial{.text = statement->second.cure->text,
                             .tried = true,
                             .right_in_proof = true,
                             .result = "right, in the proof of its modules"};
  }
}

// The smallest scenario that shows what was found, written and run.
int WriteScenario(const AuditFlags& flags, Context& context) {
  if (flags.dirs.size() != 1)
    return Complain(absl::InvalidArgumentError("--to-scenario writes one file; give one DIR"),
                    context);
  const std::string& dir = flags.dirs[0];
  const auto audit = AuditOf(dir, flags, ModulesOf(dir));
  if (!audit.ok()) return Complain(audit.status(), context);
  const auto statements = StatementsOf(dir);
  if (!statements.ok()) return Complain(statements.status(), context);
  lint::Faults faults;
  for (const capture::AuditedParam& param : audit->params) {
    if (param.verdict.outcome == Outcome::kWrong && !param.consequence)
      faults[param.name] = param.verdict.mechanism;
  }
  const bool miscounted = std::any_of(audit->norms.begin(), audit->norms.end(),
                                      [](const auto& norms) { return norms.miscounted; });
  if (miscounted) lint::AddNormFaults(*statements, faults);
  const auto text = lint::ScenarioText(*statements, faults, dir);
  if (!text.ok()) return Complain(text.status(), context);
  return WriteAndRun(*text, flags.to_scenario, flags.output, context);
}

int Explain(const AuditFlags& flags, Context& context) {
  for (const std::string& dir : flags.dirs) {
    const absl::StatusOr<capture::Audit> audit = AuditOf(dir, flags, ModulesOf(dir));
    if (!audit.ok()) return Complain(audit.status(), context);
    const capture::AuditedParam* found = nullptr;
    std::vector<std::string> names;
    for (const capture::AuditedParam& param : audit->params) {
      names.push_back(param.name);
      if (param.name == flags.explain) found = &param;
    }
    if (found == nullptr) {
      const std::string closest = Closest(flags.explain, names);
      return Complain(absl::NotFoundError(absl::StrCat(
                          dir, ": no gradient of ", flags.explain,
                          closest.empty() ? "" : absl::StrCat("; did you mean ", closest, "?"))),
                      context);
    }
    context.io.out << dir << ": " << found->name << '\n';
    for (const std::string& line : found->story) context.io.out << "  " << line << '\n';
    if (found->consequence) context.io.out << "  it inherits the fault of " << found->cause << '\n';
  }
  return kAsExpected;
}

int RunAudit(const AuditFlags& flags, Context& context) {
  if (!flags.against.empty() && flags.dirs.size() > 1) {
    return Complain(
        absl::InvalidArgumentError("--against names the reference of one capture; give one DIR"),
        context);
  }
  if (!flags.explain.empty()) return Explain(flags, context);
  if (!flags.to_scenario.empty()) return WriteScenario(flags, context);
  auto outputs = Outputs::OpenForAudit(flags.output, context.io);
  if (!outputs.ok()) return Complain(outputs.status(), context);
  (*outputs)->Begin(static_cast<int>(flags.dirs.size()));
  Summary summary;
  for (const std::string& dir : flags.dirs) {
    const auto begin = std::chrono::steady_clock::now();
    const std::optional<lint::Statements> modules = ModulesOf(dir);
    const absl::StatusOr<capture::Audit> audit = AuditOf(dir, flags, modules);
    if (!audit.ok()) return Complain(audit.status(), context);
    ScenarioResult result = capture::ResultOf(*audit, flags.strict);
    if (modules && !flags.no_modules) AddCures(*modules, result);
    result.reproduce = ReplayLine(dir, flags, context);
    result.elapsed_us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    summary.Count(result);
    (*outputs)->OnResult(result);
  }
  (*outputs)->End(summary);
  if (const absl::Status status = (*outputs)->Commit(); !status.ok())
    return Complain(status, context);
  return ExitCodeOf(summary);
}

}  // namespace

VerbAction DeclareAudit(CLI::App& app) {
  auto flags = std::make_shared<AuditFlags>();
  app.add_option("DIR", flags->dirs, "Captures: folders of step-NNNN/rank-NNNNN.safetensors")
      ->required()
      ->type_name("DIR");
  app.add_option("--against", flags->against,
                 "The same steps under another mesh (tp 1, or any other), as the reference")
      ->type_name("DIR2");
  app.add_flag("--no-modules", flags->no_modules,
               "Judge by the numbers alone, without what the module classes say");
  app.add_option("--explain", flags->explain, "Everything known of one parameter, step by step")
      ->type_name("PARAM");
  app.add_option("--to-scenario", flags->to_scenario,
                 "Write the smallest scenario that shows the faults, and run it")
      ->type_name("FILE");
  app.add_flag("--strict", flags->strict, "What is undecided fails");
  app.add_option_function<double>(
         "--rtol",
         [flags](const double& rtol) {
           if (!(rtol > 0 && rtol < 1))
             throw CLI::ValidationError("--rtol",
                                        absl::StrCat(rtol, ": expected a number between 0 and 1"));
           flags->rtol = rtol;
         },
         "Relative difference that is rounding; by default from the dtypes, against a reference "
         "2e-4 (float32) and 5e-2 (narrower)")
      ->type_name("X");
  AddOutput(app, flags->output);
  return [flags](Context& context) { return RunAudit(*flags, context); };
}

}  // namespace sumonce

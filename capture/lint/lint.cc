#include "capture/lint/lint.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce::lint {
namespace {

constexpr size_t kModulesShown = 6;
constexpr char kEveryTp[] = "right, in the proof, for every tp";

CureTrial TrialOf(const MarkCure& cure) {
  CureTrial trial{.text = cure.text, .tried = true, .right_in_proof = true, .result = kEveryTp};
  for (const MarkEdit& edit : cure.edits) trial.edits.push_back({.kind = edit, .location = {}});
  return trial;
}

// What no mark can do is said, and no cure is invented.
std::string WithoutCure(const ParamStatement& statement) {
  if (statement.proof.mechanism == Mechanism::kCollectiveMismatch)
    return "make the marks of all ranks equal";
  if (statement.proof.mechanism == Mechanism::kMixedUse ||
      statement.proof.mechanism == Mechanism::kUpstream)
    return "no action of the finalizer is right";
  return "no mark makes it right under this version and configuration: the model has to hand on "
         "another gradient";
}

Finding FindingOf(const std::string& name, const ParamStatement& statement) {
  Finding finding{.verdict = {}, .proof = statement.proof, .cure = {}};
  Verdict& verdict = finding.verdict;
  verdict.param = name;
  TakeOver(statement.proof, verdict);
  verdict.shape = statement.shape;
  verdict.rule = statement.rules;
  if (!statement.proof.reason.empty()) verdict.evidence.push_back(statement.proof.reason);
  if (!statement.module.empty()) verdict.evidence.push_back("held by " + statement.module);
  if (statement.source != "proof") verdict.evidence.push_back("class from " + statement.source);
  if (statement.cure) {
    finding.cure = TrialOf(*statement.cure);
  } else {
    verdict.evidence.push_back(WithoutCure(statement));
  }
  return finding;
}

// A gradient that is right and counted wrongly, or one more consequence of a fault.
void AddNormMiscount(const std::string& name, const ParamStatement& statement,
                     std::vector<Finding>& findings) {
  if (statement.norm_miscount.empty()) return;
  // What only inherits a fault is listed under it, and keeps this as a finding of its own.
  const bool inherits = !statement.head.empty() && statement.head != name;
  if (statement.proof.outcome == Outcome::kWrong && !inherits) {
    findings.back().verdict.consequences.push_back(Mechanism::kNormMiscount);
    findings.back().verdict.evidence.push_back(statement.norm_miscount);
    return;
  }
  Finding finding;
  finding.verdict.param = name;
  finding.verdict.outcome = Outcome::kWrong;
  finding.verdict.mechanism = Mechanism::kNormMiscount;
  finding.verdict.axis = Axis::kTp;
  const bool shared = statement.marks.shared;
  finding.verdict.coefficient = shared                                  ? "0"
                                : statement.marks.tensor_model_parallel ? "tp"
                                                                        : "1/tp";
  finding.verdict.shape = statement.shape;
  finding.verdict.rule = statement.rules;
  finding.verdict.evidence = {statement.norm_miscount, "its gradient itself is right",
                              "held by " + statement.module};
  const bool wanted = !statement.marks.tensor_model_parallel;
  finding.cure = CureTrial{
      .edits = {},
      .text = absl::StrCat("set ", shared ? "shared" : "tensor_model_parallel", " = ",
                           wanted && !shared ? "True" : "False", " on the parameter ", name),
      .tried = true,
      .right_in_proof = true,
      .result = kEveryTp};
  findings.push_back(std::move(finding));
}

// One finding where the gradient goes wrong, the parameters below listed under it.
void ListInheritors(const Statements& statements, std::vector<Finding>& findings) {
  const auto of_gradient = [](const Finding& finding) {
    return finding.verdict.mechanism != Mechanism::kNormMiscount;
  };
  std::map<std::string, Verdict*> heads;
  for (Finding& finding : findings) {
    if (of_gradient(finding)) heads[finding.verdict.param] = &finding.verdict;
  }
  std::set<std::string> listed;
  for (const Finding& finding : findings) {
    if (!of_gradient(finding)) continue;
    const std::string& name = finding.verdict.param;
    const auto statement = statements.params.find(name);
    if (statement == statements.params.end() || statement->second.head.empty()) continue;
    const auto head = heads.find(statement->second.head);
    if (head == heads.end() || head->first == name) continue;
    head->second->affected.push_back(name);
    listed.insert(name);
  }
  std::erase_if(findings, [&](const Finding& finding) {
    return of_gradient(finding) && listed.contains(finding.verdict.param);
  });
}

std::string OutcomeText(const Proof& proof) {
  if (proof.outcome != Outcome::kWrong) return std::string(Name(proof.outcome));
  return std::string(Name(proof.mechanism));
}

std::string ClassText(GradClass grad_class) {
  return grad_class == GradClass::kUnknown ? "" : std::string(Name(grad_class));
}

// What is wrong comes first, what is right last.
int Order(const ParamStatement& statement) {
  if (statement.proof.outcome == Outcome::kWrong) return 0;
  if (!statement.norm_miscount.empty()) return 1;
  return statement.proof.outcome == Outcome::kNoStatement ? 2 : 3;
}

// Parameter kind x needed action x action that will happen.
TextTable KindTable(const Statements& statements) {
  using Key = std::tuple<int, std::string, std::string, std::string, std::string, std::string>;
  std::map<Key, int> counts;
  for (const auto& [name, statement] : statements.params) {
    const Proof& proof = statement.proof;
    const bool along_tp = !proof.axis || *proof.axis == Axis::kTp;
    const std::string action = statement.needed.empty() || !along_tp ? "" : proof.action;
    const char* norm = statement.norm_miscount.empty() ? "" : ", NORM_MISCOUNT";
    ++counts[{Order(statement), statement.kind, ClassText(statement.tp_class), statement.needed,
              action, OutcomeText(proof) + norm}];
  }
  TextTable table{.title = "over tp, by kind of parameter",
                  .columns = {"kind", "count", "class", "needed", "action", "verdict"},
                  .rows = {}};
  for (const auto& [key, count] : counts) {
    const auto& [order, kind, grad_class, needed, action, verdict] = key;
    table.rows.push_back({kind, absl::StrCat(count), grad_class, needed, action, verdict});
  }
  return table;
}

// "8 parameters: megatron...MoELayer (mixture of experts) is not modelled: decoder.layers.*.mlp..."
std::vector<std::string> UnknownLines(const Statements& statements) {
  std::map<std::string, std::set<std::string>> kinds;
  std::map<std::string, int> counts;
  for (const auto& [name, statement] : statements.params) {
    if (statement.proof.outcome != Outcome::kNoStatement) continue;
    std::string reason = statement.proof.reason;
    if (!statement.proof.operation.empty())
      reason = absl::StrCat("lost at ", statement.proof.operation, ": ", reason);
    kinds[reason].insert(statement.kind);
    ++counts[reason];
  }
  std::vector<std::string> lines;
  for (const auto& [reason, names] : kinds) {
    std::vector<std::string> shown(names.begin(), names.end());
    const size_t left = shown.size() > kModulesShown ? shown.size() - kModulesShown : 0;
    shown.resize(shown.size() - left);
    lines.push_back(absl::StrCat("NO_STATEMENT of ", counts[reason],
                                 counts[reason] == 1 ? " parameter: " : " parameters: ", reason,
                                 ": ", absl::StrJoin(shown, ", "),
                                 left > 0 ? absl::StrCat(" and ", left, " more kinds") : ""));
  }
  return lines;
}

std::vector<std::string> ConditionsOf(const Statements& statements) {
  std::vector<std::string> conditions = statements.conditions;
  for (const std::string& assumption : statements.map.assumptions) conditions.push_back(assumption);
  std::set<std::string> classes;
  for (const Unmodelled& unmodelled : statements.map.unmodelled)
    classes.insert(absl::StrCat(PatternOf(unmodelled.path), " (", unmodelled.class_name, ")"));
  if (!classes.empty()) {
    conditions.push_back(
        absl::StrCat("what is not modelled hands on the gradient of its input whole "
                     "and once: ",
                     absl::StrJoin(classes, ", ")));
  }
  return conditions;
}

std::string WhySilent(const Statements& statements) {
  if (statements.params.empty()) {
    return absl::StrCat(
        "nothing to judge: the manifest has no trained parameter (`params` with "
        "requires_grad), ",
        statements.frozen, " frozen");
  }
  return absl::StrCat("nothing can be said of any parameter: ",
                      statements.refused.empty() ? statements.params.begin()->second.proof.reason
                                                 : statements.refused);
}

}  // namespace

absl::StatusOr<ScenarioResult> Lint(const std::string& path, const LintOptions& options) {
  SUMONCE_ASSIGN_OR_RETURN(const capture::ManifestSet set, capture::LoadManifestSet(path));
  SUMONCE_ASSIGN_OR_RETURN(const Statements statements,
                           StateParameters(set.manifests, options.state));
  ScenarioResult result = LintStatements(statements, path, options);
  if (set.faults.empty()) return result;
  for (const std::string& fault : set.faults)
    result.failures.push_back(absl::StrCat(fault, "; the ranks that are there are judged"));
  result.outcome = RunOutcome::kFail;
  return result;
}

ScenarioResult LintStatements(const Statements& statements, const std::string& path,
                              const LintOptions& options) {
  ScenarioResult result;
  result.name = path;
  result.file = path;
  result.mesh = statements.map.scenario.mesh;
  int unsaid = 0;
  for (const auto& [name, statement] : statements.params) {
    const Outcome outcome = statement.proof.outcome;
    unsaid += outcome == Outcome::kNoStatement;
    result.params_right += outcome == Outcome::kRight;
    if (outcome == Outcome::kWrong) result.findings.push_back(FindingOf(name, statement));
    if (outcome != Outcome::kNoStatement) AddNormMiscount(name, statement, result.findings);
  }
  ListInheritors(statements, result.findings);
  result.statements = UnknownLines(statements);
  result.statements.push_back(absl::StrCat(result.params_right, " RIGHT, ", result.findings.size(),
                                           " findings, ", unsaid, " NO_STATEMENT, ",
                                           statements.frozen, " not trained; finalizer ",
                                           statements.map.scenario.finalizer));
  if (const auto conditions = ConditionsOf(statements); !conditions.empty())
    result.statements.push_back("holds when " + absl::StrJoin(conditions, ", "));
  if (!statements.params.empty() && statements.refused.empty())
    result.text_tables.push_back(KindTable(statements));
  if (options.strict && unsaid > 0) {
    result.failures.push_back(
        absl::StrCat(unsaid, " parameters of which nothing can be said (--strict)"));
  }
  const bool silent = result.params_right == 0 && result.findings.empty();
  if (!result.findings.empty() || !result.failures.empty()) {
    result.outcome = RunOutcome::kFail;
  } else if (silent) {
    result.outcome = RunOutcome::kSkip;
    result.skip_reason = WhySilent(statements);
  }
  return result;
}

}  // namespace sumonce::lint

#include "trace/prove_traces.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "trace/conditions.h"
#include "trace/cures.h"
#include "trace/whole_numbers.h"
#include "verify/judge.h"

namespace sumonce::trace {
namespace {

Proof Unproved(const std::string& param, const std::string& reason) {
  Proof proof;
  proof.param = param;
  proof.outcome = Outcome::kNoStatement;
  proof.reason = reason;
  return proof;
}

// Whether the operation adds to the parameter's own gradient.
bool Accumulates(const Prover& prover, const TracedGradient& gradient, int op) {
  const Program& base = prover.traces().base();
  const auto& writes = base.ops[op].writes;
  return writes.size() == 1 &&
         base.tensor(writes[0]).storage == base.tensor(gradient.ref.id).storage &&
         base.tensor(writes[0]).geometry == base.tensor(gradient.ref.id).geometry;
}

Proof Refused(const Prover& prover, const TracedGradient& gradient, const Value& lost) {
  Proof proof = Unproved(gradient.param, lost.state.lost.reason);
  const auto refusal = prover.refusals().find(lost.state.lost.operation);
  if (refusal == prover.refusals().end()) return proof;
  proof.operation = refusal->second.name;
  proof.reason = refusal->second.reason;
  if (!refusal->second.operands.empty())
    absl::StrAppend(&proof.reason, " (", refusal->second.operands, ")");
  if (!refusal->second.mixed_use) return proof;
  proof.mechanism = Mechanism::kMixedUse;
  // Two uses of the parameter itself that no action can both serve: known to be wrong.
  if (Accumulates(prover, gradient, refusal->first)) {
    proof.outcome = Outcome::kWrong;
    proof.coefficient = "none: per rank";
    proof.axis = Axis::kTp;
  }
  return proof;
}

Proof Judged(const Prover& prover, const TracedGradient& gradient, const Judgement& judgement) {
  Proof proof;
  proof.param = gradient.param;
  SetJudgement(judgement, proof);
  proof.before = prover.Describe(gradient.before);
  proof.after = prover.Describe(gradient.after);
  return proof;
}

Proof ProofOf(Prover& prover, const TracedGradient& gradient) {
  const Value& target = gradient.target;
  const Value& after = gradient.after;
  if (target.lost())
    return Unproved(gradient.param, "its extents at the two sizes are neither whole nor a shard");
  if (after.lost()) return Refused(prover, gradient, after);
  if (!after.is_state()) {
    return Unproved(gradient.param, after.is_zero()
                                        ? "no gradient reaches it"
                                        : "its gradient is no state of the reference's");
  }
  if (after.is(Layout::kShard) && target.is(Layout::kShard)) {
    if (!(after.cut == target.cut)) {
      Judgement judgement{.outcome = Outcome::kWrong,
                          .mechanism = Mechanism::kWrongShard,
                          .axis = Axis::kTp,
                          .coefficient = "none: per rank"};
      return Judged(prover, gradient, judgement);
    }
    if (!prover.sections().Align(after.strip, target.strip))
      return Unproved(gradient.param, kCutAndJoined);
  }
  // Made by the finalizer alone: what it did with the rest is not known.
  const bool made_late = gradient.before.lost() || !gradient.before.is_state();
  const State& before = made_late ? after.state : gradient.before.state;
  const Judgement judgement = Judge(target.state, before, after.state, Scale(), prover.mesh());
  if (made_late && judgement.outcome != Outcome::kRight)
    return Unproved(gradient.param, "its gradient before the finalizer is not known");
  return Judged(prover, gradient, judgement);
}

std::string Missing(const TraceSet& set) {
  if (set.twice && set.whole) return "";
  const int n = set.size();
  return absl::StrCat(
      "a single size is never enough: / ", n,
      " cannot be told from / tp. Missing: ", set.twice ? "" : absl::StrCat("rank 0 at tp ", 2 * n),
      set.twice || set.whole ? "" : " and ", set.whole ? "" : "the unsharded trace",
      "; python -m sumonce_trace JOB.py:STEP --tp ", n, ",", 2 * n, " makes them");
}

// Of a parameter that is not what the unsharded one's slice is, nothing is proved.
void CheckWhole(const TraceSet& set, const Prover& prover, TraceProof& proof) {
  std::map<std::string_view, const Extents*> shapes;
  for (const ParamInfo& param : set.whole->params) shapes[param.name] = &param.shape;
  for (const TracedGradient& gradient : prover.gradients()) {
    const auto whole = shapes.find(gradient.param);
    const Geometry& geometry = set.base().tensor(gradient.ref.id).geometry;
    Extents expected = geometry.shape;
    if (gradient.target.is(Layout::kShard)) expected[gradient.target.cut.dim] *= set.size();
    if (whole != shapes.end() && *whole->second == expected) continue;
    proof.proofs[gradient.param] = Unproved(
        gradient.param, whole == shapes.end()
                            ? "the unsharded trace has no parameter of this name"
                            : absl::StrCat("the unsharded parameter is ", ShapeText(*whole->second),
                                           ", expected ", ShapeText(expected)));
  }
}

void AddCures(const TraceSet& set, const Prover& prover, TraceProof& proof) {
  std::map<std::string_view, const ParamInfo*> params;
  for (const ParamInfo& param : set.base().params) params[param.name] = &param;
  for (const TracedGradient& gradient : prover.gradients()) {
    if (proof.proofs[gradient.param].outcome != Outcome::kWrong) continue;
    if (auto cure = ProposeCure(prover, gradient, *params.at(gradient.param)))
      proof.cures[gradient.param] = *std::move(cure);
  }
}

// A mixed use by rows is cured by a sum in the backward pass; tried as if the program had it.
void AddCuresOfMixedUse(const Alignment& traces, const DeclarationTable& table, TraceProof& proof) {
  const auto mixed = [](const Proof& one) {
    return one.mechanism == Mechanism::kMixedUse && one.outcome == Outcome::kNoStatement;
  };
  const bool any = std::any_of(proof.proofs.begin(), proof.proofs.end(),
                               [&](const auto& named) { return mixed(named.second); });
  if (!any) return;
  Prover trial(traces, table);
  trial.SumMixedParts();
  trial.Run();
  for (const TracedGradient& gradient : trial.gradients()) {
    if (mixed(proof.proofs[gradient.param]) && ProofOf(trial, gradient).outcome == Outcome::kRight)
      proof.cures[gradient.param] = CureOfMixedUse(trial);
  }
}

// Under the first parameter that lost its state at an operation, the others that did there.
void ListInheritors(std::vector<Finding>& findings) {
  std::map<std::string, Finding*> first;
  for (Finding& finding : findings) {
    if (finding.verdict.operation.empty()) continue;
    const auto [known, added] = first.emplace(finding.verdict.operation, &finding);
    if (!added) known->second->verdict.affected.push_back(finding.verdict.param);
  }
}

}  // namespace

TraceProof ProveTraces(const TraceSet& set, const DeclarationTable& table) {
  TraceProof proof;
  const auto refuse = [&](const std::string& why) {
    proof.refused = why;
    for (const ParamInfo& param : set.base().params) {
      if (param.trainable)
        proof.proofs[std::string(param.name)] = Unproved(std::string(param.name), why);
    }
    return proof;
  };
  if (const std::string missing = Missing(set); !missing.empty()) return refuse(missing);
  const auto traces = Alignment::Of(set);
  if (!traces.ok()) return refuse(std::string(traces.status().message()));
  if (const std::string alone = NumberOfWholeAlone(*traces); !alone.empty()) return refuse(alone);
  Prover prover(*traces, table);
  prover.Run();
  for (const ParamInfo& param : set.base().params) {
    if (param.trainable) {
      proof.proofs[std::string(param.name)] =
          Unproved(std::string(param.name), "the traces have no tensor for its gradient");
    }
  }
  for (const TracedGradient& gradient : prover.gradients())
    proof.proofs[gradient.param] = ProofOf(prover, gradient);
  CheckWhole(set, prover, proof);
  AddCures(set, prover, proof);
  AddCuresOfMixedUse(*traces, table, proof);
  proof.refusals = prover.refusals();
  proof.conditions = ConditionsOf(*traces, prover);
  return proof;
}

ScenarioResult JudgeTraces(const TraceSet& set, const std::string& dir) {
  ScenarioResult result;
  result.name = set.name;
  result.file = dir;
  result.mesh.tp = set.size();
  const TraceProof proof = ProveTraces(set);
  result.conditions = proof.conditions;
  if (!proof.refused.empty()) result.failures.push_back(proof.refused);
  for (const auto& [param, statement] : proof.proofs) {
    if (statement.outcome == Outcome::kRight) {
      ++result.params_right;
      continue;
    }
    Finding finding{.verdict = {}, .proof = statement, .cure = {}};
    finding.verdict.param = param;
    TakeOver(statement, finding.verdict);
    if (!statement.reason.empty()) finding.verdict.evidence.push_back(statement.reason);
    if (!proof.refused.empty()) finding.proof->reason = "";  // the result's own failure tells it
    if (const auto cure = proof.cures.find(param); cure != proof.cures.end())
      finding.cure = cure->second;
    result.findings.push_back(std::move(finding));
  }
  ListInheritors(result.findings);
  if (proof.proofs.empty()) result.failures.push_back("the trace has no trainable parameter");
  if (!result.findings.empty() || !result.failures.empty()) result.outcome = RunOutcome::kFail;
  return result;
}

}  // namespace sumonce::trace

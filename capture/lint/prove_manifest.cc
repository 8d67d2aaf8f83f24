#include "capture/lint/prove_manifest.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sim/simulator.h"
#include "verify/judge.h"

namespace sumonce::lint {
namespace {

Param AsParam(const std::string& name, const Marks& marks) {
  Param param;
  param.name = name;
  param.marks = marks;
  return param;
}

}  // namespace

ManifestFinalizer::ManifestFinalizer(const ProofRun& run, const Scenario& scenario)
    : run_(run),
      preset_(*Finalizers().Find(scenario.finalizer)),
      config_(EffectiveFinalizeConfig(scenario)) {}

ParamState ManifestFinalizer::StateOf(GradClass grad_class) const {
  ParamState state;
  state.before.scale = run_.sound_scale;
  for (const int a : mesh().GroupOf(Axis::kTp).atomic) {
    if (grad_class == GradClass::kPartial) state.before[a] = Partial(SetOf(Dim::kSequence));
    if (grad_class == GradClass::kShard) state.before[a] = state.target[a] = Shard(Dim::kOut);
    if (grad_class == GradClass::kEqualShare)
      state.before.scale = state.before.scale * Scale::SizeOfAxis(a, -1);
  }
  for (const int a : mesh().GroupOf(Axis::kDp).atomic)
    state.before[a] = Partial(SetOf(Dim::kBatch));
  return state;
}

Proof ManifestFinalizer::Finalized(const std::string& name, const Marks& marks,
                                   const ParamState& state, const FinalizeConfig& config) const {
  Proof proof;
  proof.param = name;
  const Param param = AsParam(name, marks);
  State after = state.before;
  for (const FinalizeStep& step : preset_.steps)
    after = ApplyFinalizeStep(step, config, mesh(), param, after);
  proof.before = Describe(state.before, mesh());
  proof.after = Describe(after, mesh());
  SetJudgement(Judge(state.target, state.before, after, run_.sound_scale, mesh()), proof);
  return proof;
}

std::vector<std::string> ManifestFinalizer::Claims(const std::string& name,
                                                   const Marks& marks) const {
  const Param param = AsParam(name, marks);
  std::vector<std::string> claims;
  for (const FinalizeStep& step : preset_.steps) {
    const FinalizeRule* rule = Claiming(step, param, config_);
    claims.push_back(rule ? rule->name : "");
  }
  return claims;
}

std::string ParamAt(const ProofRun& run, int operation) {
  if (operation < 0) return "";
  const auto& nodes = run.tape->nodes();
  if (nodes[operation].kind == Tape::Kind::kUse) return nodes[operation].param->name;
  for (int operand : nodes[operation].operands) {
    while (nodes[operand].kind == Tape::Kind::kCollective) operand = nodes[operand].operands[0];
    for (const int input : nodes[operand].operands) {
      if (nodes[input].kind == Tape::Kind::kUse) return nodes[input].param->name;
    }
  }
  return "";
}

}  // namespace sumonce::lint

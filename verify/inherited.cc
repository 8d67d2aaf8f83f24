#include "verify/inherited.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sim/simulator.h"
#include "verify/judge.h"
#include "verify/rank_classes.h"

namespace sumonce {
namespace {

// Whether a gradient flows from the operation to a use of the parameter.
bool Below(const AbstractTape& tape, const std::string& operation, const std::string& param) {
  const auto& nodes = tape.nodes();
  std::vector<bool> below(nodes.size());
  for (int id = static_cast<int>(nodes.size()) - 1; id >= 0; --id) {
    below[id] = below[id] || nodes[id].name == operation;
    if (!below[id]) continue;
    if (nodes[id].param && nodes[id].param->name == param) return true;
    for (int operand : nodes[id].operands) below[operand] = true;
  }
  return false;
}

}  // namespace

bool InheritsFault(const Scenario& scenario, std::span<const Edit> edits, const ProofRun& run,
                   const ProofRun& clean, const std::string& param, const std::string& operation) {
  const auto now = run.before.find(param);
  const auto sound = clean.before.find(param);
  if (now == run.before.end() || sound == clean.before.end() || !sound->second.ok() ||
      clean.proofs.at(param).outcome != Outcome::kRight)
    return false;
  if (now->second.axes == sound->second.axes && now->second.scale == sound->second.scale)
    return false;
  if (!Below(*clean.tape, operation, param)) return false;
  const Param& held = *run.model->params().Find(param);
  State after = sound->second;
  for (const FinalizeStep& step : EffectivePreset(scenario, edits).steps)
    after = ApplyFinalizeStep(step, EffectiveFinalizeConfig(scenario), *run.mesh, held, after);
  return after.ok() &&
         Judge(held.shards.Target(*run.mesh), sound->second, after, run.sound_scale, *run.mesh)
                 .outcome == Outcome::kRight;
}

std::string InheritedText(const ProofRun& run, const ProofRun& clean, const Verdict& verdict) {
  std::string text(Name(verdict.mechanism));
  if (verdict.axis) absl::StrAppend(&text, " over ", ToAbsl(Name(*verdict.axis)));
  if (!verdict.coefficient.empty()) absl::StrAppend(&text, ", coefficient ", verdict.coefficient);
  return absl::StrCat(verdict.param, " inherits it: its gradient is ",
                      Describe(run.before.at(verdict.param), *run.mesh), ", a sound one ",
                      Describe(clean.before.at(verdict.param), *clean.mesh),
                      ", for which the finalizer is right; by itself it reads ", text);
}

}  // namespace sumonce

#include "verify/telling_data.h"

#include "base/random.h"
#include "sim/data.h"
#include "verify/diagnose.h"

namespace sumonce {
namespace {

// Small whole numbers in exact mode, whose tolerance is zero.
Weights WithoutZeros(const Weights& weights, const Scenario& scenario) {
  Weights filled;
  for (const auto& [name, weight] : weights) {
    const RandomStream stream(scenario.seed, "telling." + name);
    Tensor values = weight.Clone();
    for (int64_t i = 0; i < values.count(); ++i) {
      if (values.data()[i] != 0) continue;
      values.data()[i] = scenario.data.fill == Fill::kExact
                             ? static_cast<double>(stream.Integer(i, 1, 3))
                             : 0.25 * (2 * stream.Uniform(i) - 1);
    }
    filled[name] = std::move(values);
  }
  return filled;
}

}  // namespace

std::map<std::string, Verdict> VerdictsOnTellingData(const Scenario& scenario,
                                                     std::span<const Edit> edits,
                                                     const Weights& start,
                                                     const std::set<std::string>& params,
                                                     Tolerance tolerance) {
  std::map<std::string, Verdict> verdicts;
  Scenario telling = scenario;
  telling.data.loss_on.clear();
  telling.steps = 1;
  const Weights weights = WithoutZeros(start, scenario);
  const SimResult run = Simulate(telling, edits, weights, SimOptions());
  const SimResult reference = SimulateReference(telling, weights, 1, 1, SimOptions());
  const SimResult neighbour = SimulateReference(
      telling, Perturbed(weights, tolerance.gamma, scenario.seed), 1, 1, SimOptions());
  if (!run.status.ok() || !reference.status.ok() || !neighbour.status.ok()) return verdicts;
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  const StepRecord& sound = reference.record.ranks[0][0];
  ComparedStep step{.reference = &sound};
  for (const RankRecords& rank : run.record.ranks) step.ranks.push_back(&rank[0]);
  Model model(EffectiveModel(scenario));
  for (const Param& param : model.params().all()) {
    if (!params.contains(param.name)) continue;
    tolerance.amplification =
        RelativeDistance(sound.params.at(param.name).contribution,
                         neighbour.record.ranks[0][0].params.at(param.name).contribution);
    const DiagnoseInputs inputs{
        .mesh = &mesh, .sound_scale = LossScale(scenario, mesh), .tolerance = tolerance};
    verdicts[param.name] = DiagnoseParam(inputs, step, param);
  }
  return verdicts;
}

}  // namespace sumonce

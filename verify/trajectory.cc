#include "verify/trajectory.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "spmd/whole.h"

namespace sumonce {
namespace {

constexpr double kDirections = 16;
constexpr double kMostOfTheWay = 0.1;

// What roundings of the gradients may have moved each weight by, over all steps.
Tensor Allowed(const Scenario& scenario, const RankRecords& reference, const std::string& param,
               const Tolerance& tolerance) {
  Tensor allowed(reference[0].params.at(param).weight_before.dims());
  for (const StepRecord& step : reference) {
    const ParamRecord& record = step.params.at(param);
    const double rounding = tolerance.For(MaxAbs(record.finalized()));
    const double own = tolerance.For(MaxAbs(record.weight_after));
    for (int64_t i = 0; i < allowed.count(); ++i) {
      const double grad = std::fabs(record.finalized().data()[i]);
      const double relative =
          rounding == 0 ? 0.0 : std::min(2.0, 2 * rounding / (grad + scenario.optimizer.eps));
      allowed.data()[i] += scenario.optimizer.lr * relative + own;
    }
  }
  return allowed;
}

// How far `param` went in all steps.
double WayOf(const RankRecords& reference, const std::string& param) {
  return Compare(reference.back().params.at(param).weight_after,
                 reference.front().params.at(param).weight_before, 0)
      .diff_abs_max;
}

}  // namespace

TrajectoryResult CompareTrajectory(const Scenario& scenario, const RunRecord& record,
                                   const Weights& start, const Tolerance& tolerance) {
  TrajectoryResult result{.equal = true};
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  Model model(EffectiveModel(scenario));
  const SimResult reference = SimulateReference(scenario, start, 1, scenario.steps, SimOptions());
  SUMONCE_CHECK(reference.status.ok()) << reference.status;
  const SimResult moved = SimulateReference(
      scenario, Perturbed(start, tolerance.gamma + tolerance.rounding, scenario.seed), 1,
      scenario.steps, SimOptions());
  double most = 0;
  for (const Param& param : model.params().all()) {
    if (!param.requires_grad) continue;
    std::vector<Tensor> ranks;
    for (const RankRecords& rank : record.ranks)
      ranks.push_back(rank.back().params.at(param.name).weight_after);
    const Joined joined = Join(param.shards.Target(mesh), mesh, ranks);
    const Tensor& expected = reference.record.ranks[0].back().params.at(param.name).weight_after;
    Tensor allowed = Allowed(scenario, reference.record.ranks[0], param.name, tolerance);
    const double growth =
        kDirections *
        Compare(moved.record.ranks[0].back().params.at(param.name).weight_after, expected, 0)
            .diff_abs_max;
    const double at_start =
        kDirections * 2 * (tolerance.gamma + tolerance.rounding) * MaxAbs(expected);
    if (growth > at_start + kMostOfTheWay * WayOf(reference.record.ranks[0], param.name))
      return {.equal = true, .chaotic = true};
    for (int64_t i = 0; i < allowed.count(); ++i) allowed.data()[i] += growth;
    for (int64_t i = 0; i < expected.count(); ++i) {
      const double difference =
          std::fabs(joined.whole.data()[i] - expected.data()[i]) + joined.spread;
      if (!(difference <= allowed.data()[i])) result.equal = false;
      // The worst element is the one that uses most of its own bound.
      const double used =
          difference / std::max(allowed.data()[i], std::numeric_limits<double>::min());
      if (result.worst_param.empty() || !(used <= most)) {
        most = used;
        result.diff_abs_max = difference;
        result.allowed = allowed.data()[i];
        result.worst_param = param.name;
      }
    }
  }
  return result;
}

}  // namespace sumonce

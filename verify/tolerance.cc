#include "verify/tolerance.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace sumonce {
namespace {

constexpr double kUnit = 0x1p-53;

// Terms that a node adds up, at most, in one element of its result or of an operand's gradient.
double TermsOf(const Tape& tape, const Tape::Node& node) {
  if (node.kind != Tape::Kind::kLocal) return 1;
  double summed = 1;
  for (int operand : node.operands) {
    double extent = 1;
    for (const DimExtent& dim : tape.nodes()[operand].dims) {
      const bool left = Find(node.dims, dim.dim) < 0;
      if (left || Contains(node.declaration.mixes, dim.dim))
        extent *= static_cast<double>(dim.extent());
    }
    summed = std::max(summed, extent);
    // Backward sums over the dimensions of the result that this operand lacks.
    double lacking = 1;
    for (const DimExtent& dim : node.dims) {
      if (Find(tape.nodes()[operand].dims, dim.dim) < 0)
        lacking *= static_cast<double>(dim.extent());
    }
    summed = std::max(summed, lacking);
  }
  return summed;
}

}  // namespace

Tolerance DeriveTolerance(const Tape& tape, int microbatches, int world_size, bool exact) {
  Tolerance tolerance;
  for (const Tape::Node& node : tape.nodes()) tolerance.height += TermsOf(tape, node);
  tolerance.height += microbatches + world_size;
  const double hu = tolerance.height * kUnit;
  tolerance.gamma = exact ? 0.0 : hu / (1 - hu);
  return tolerance;
}

double RoundingOf(const PrecisionConfig& precision, int microbatches, int world_size) {
  if (!precision.bf16) return 0;
  constexpr int kFactors = 2;  // before the data-parallel sum, and 1/num_tokens
  const double hu =
      UnitRoundoff(precision.grad_dtype()) +
      (microbatches + world_size + kFactors) * UnitRoundoff(precision.main_grad_dtype());
  return hu / (1 - hu);
}

std::map<std::string, Tensor> Perturbed(const std::map<std::string, Tensor>& weights, double gamma,
                                        uint64_t seed) {
  std::map<std::string, Tensor> perturbed;
  for (const auto& [name, weight] : weights) {
    const RandomStream stream(seed, "perturbation." + name);
    Tensor moved = weight.Clone();
    for (int64_t i = 0; i < moved.count(); ++i)
      moved.data()[i] *= 1 + gamma * (2 * stream.Uniform(i) - 1);
    perturbed[name] = moved;
  }
  return perturbed;
}

double RelativeDistance(const Tensor& a, const Tensor& b) {
  const double largest = MaxAbs(a);
  return largest > 0 ? Compare(a, b, 0).diff_abs_max / largest : 0.0;
}

Comparison Compare(const Tensor& a, const Tensor& b, double allowed) {
  Comparison comparison{.allowed = allowed};
  if (a.count() != b.count() || a.empty()) return comparison;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double difference = std::fabs(a.data()[i] - b.data()[i]);
    if (!(difference <= allowed)) ++comparison.mismatched;
    if (comparison.worst < 0 || difference > comparison.diff_abs_max || std::isnan(difference)) {
      comparison.diff_abs_max = difference;
      comparison.worst = i;
    }
  }
  comparison.equal = comparison.mismatched == 0;
  return comparison;
}

double MaxAbs(const Tensor& tensor) {
  double max = 0;
  for (double value : tensor.values())
    max = std::isnan(value) ? value : std::max(max, std::fabs(value));
  return max;
}

}  // namespace sumonce

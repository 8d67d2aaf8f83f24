#include "verify/recover_state.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/status.h"

namespace sumonce {
namespace {

// 1/tp^3 is a sharded gradient that arrives with 1/tp, is divided and averaged; tp^2/dp^2 has four.
constexpr int kMaxExponents = 4;

// All monomials whose exponents' sizes add up to at most kMaxExponents, nearest to 1 first.
std::vector<Scale> Monomials(const Mesh& mesh) {
  std::vector<std::pair<int, Scale>> found = {{0, Scale()}};
  for (size_t a = 0; a < mesh.atomic().size(); ++a) {
    const size_t count = found.size();
    for (size_t i = 0; i < count; ++i) {
      for (int k = -kMaxExponents; k <= kMaxExponents; ++k) {
        if (k == 0 || found[i].first + std::abs(k) > kMaxExponents) continue;
        found.push_back({found[i].first + std::abs(k),
                         found[i].second * Scale::SizeOfAxis(static_cast<int>(a), k)});
      }
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  std::vector<Scale> scales;
  for (const auto& [weight, scale] : found) scales.push_back(scale);
  return scales;
}

std::optional<Scale> AsRational(double factor) {
  for (int64_t denominator = 1; denominator <= 4096; ++denominator) {
    const double numerator = factor * static_cast<double>(denominator);
    const double nearest = std::round(numerator);
    if (nearest == 0 || std::fabs(nearest) > 65536 ||
        std::fabs(numerator - nearest) > 1e-9 * std::fabs(nearest))
      continue;
    return Scale::Rational(static_cast<int64_t>(nearest), denominator);
  }
  return std::nullopt;
}

// The layouts to try along one axis. Mixtures are what sums of the target's shards give.
std::vector<AxisState> Candidates(const AxisState& target) {
  if (target.layout == Layout::kShard) return {target, Partial(0), Equal(), Mixed()};
  return {Equal(), Partial(0)};
}

// Sums the slices of `whole` along every mixed axis.
Tensor MixSlices(const State& state, const State& target, const Mesh& mesh, Tensor whole) {
  for (size_t a = 0; a < mesh.atomic().size(); ++a) {
    if (state[static_cast<int>(a)].layout != Layout::kMixed) continue;
    const Dim dim = target[static_cast<int>(a)].dim;
    const int n = mesh.atomic()[a].size;
    Tensor sum = SliceUnits(whole, dim, 0, n);
    for (int k = 1; k < n; ++k) AddInto(sum, SliceUnits(whole, dim, k, n));
    whole = sum;
  }
  return whole;
}

std::vector<State> AllLayouts(const State& target, const Mesh& mesh) {
  std::vector<State> states = {State()};
  for (size_t a = 0; a < mesh.atomic().size(); ++a) {
    std::vector<State> more;
    for (const State& state : states) {
      for (const AxisState& candidate : Candidates(target[static_cast<int>(a)])) {
        more.push_back(state);
        more.back()[static_cast<int>(a)] = candidate;
      }
    }
    states = std::move(more);
  }
  return states;
}

double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.count(); ++i) sum += a.data()[i] * b.data()[i];
  return sum;
}

class Recovery {
 public:
  Recovery(const Mesh& mesh, std::span<const Tensor> ranks, const Tensor& reference,
           const Tolerance& tolerance)
      : mesh_(mesh),
        ranks_(ranks),
        reference_(reference),
        tolerance_(tolerance),
        monomials_(Monomials(mesh)) {}

  void Try(const State& layout, const State& target, RecoveredState& result) const {
    // A mixture leaves equal copies; they are joined as such and compared with the sum of slices.
    State joinable = layout;
    for (AxisState& axis : joinable.axes) {
      if (axis.layout == Layout::kMixed) axis = Equal();
    }
    const Joined joined = Join(joinable, mesh_, ranks_);
    const Tensor expected = MixSlices(layout, target, mesh_, reference_);
    if (joined.whole.empty() || joined.whole.count() != expected.count()) return;
    const double magnitude = Magnitude(joined.whole);
    const double norm = Dot(expected, expected);
    if (norm == 0 || joined.spread > tolerance_.For(magnitude)) return;
    const double factor = Dot(joined.whole, expected) / norm;
    if (!std::isfinite(factor)) return;
    const std::vector<Scale> scales = ScalesOf(factor);
    if (scales.empty() || !Fits(joined, expected, scales[0], magnitude, result)) return;
    for (const Scale& scale : scales) {
      result.all.push_back(layout);
      result.all.back().scale = scale;
    }
    if (!result.found) result.state = result.all[0];
    result.found = true;
  }

 private:
  // The monomials of this value, nearest to 1 first: with equal sizes of two axes the numbers
  // cannot tell their factors apart. Without any: the small rational.
  std::vector<Scale> ScalesOf(double factor) const {
    std::vector<Scale> scales;
    for (const Scale& scale : monomials_) {
      const double allowed = (1e-6 + tolerance_.rounding) * std::fabs(factor);
      if (std::fabs(scale.Evaluate(mesh_) - factor) <= allowed) scales.push_back(scale);
    }
    if (!scales.empty()) return scales;
    if (const std::optional<Scale> rational = AsRational(factor)) scales.push_back(*rational);
    return scales;
  }

  // The size of what is added up: each rank's terms, not only their sum, which may cancel.
  double Magnitude(const Tensor& joined) const {
    double sum = 0;
    for (const Tensor& rank : ranks_) sum += MaxAbs(rank);
    return std::max(MaxAbs(joined), sum);
  }

  // Compares; the margin of the first that fits is kept.
  bool Fits(const Joined& joined, const Tensor& expected, const Scale& scale, double magnitude,
            RecoveredState& result) const {
    const double factor = scale.Evaluate(mesh_);
    const double allowed =
        tolerance_.For(std::max(magnitude, std::fabs(factor) * MaxAbs(reference_)));
    const Comparison comparison = Compare(joined.whole, Times(expected, scale), allowed);
    if (!comparison.equal) return false;
    if (!result.found) {
      result.diff_abs_max = std::max(comparison.diff_abs_max, joined.spread);
      result.allowed = allowed;
    }
    return true;
  }

  // Divided by a whole number where the factor is its inverse, as averages are: times 1/3 would
  // round once more.
  Tensor Times(const Tensor& tensor, const Scale& scale) const {
    Tensor scaled = tensor.Clone();
    const double inverse = scale.IsZero() ? 0.0 : scale.Inverse().Evaluate(mesh_);
    if (std::fabs(inverse) > 1 && inverse == std::round(inverse)) {
      for (int64_t i = 0; i < scaled.count(); ++i) scaled.data()[i] /= inverse;
    } else {
      ScaleInto(scaled, scale.Evaluate(mesh_));
    }
    return scaled;
  }

  const Mesh& mesh_;
  std::span<const Tensor> ranks_;
  const Tensor& reference_;
  const Tolerance& tolerance_;
  std::vector<Scale> monomials_;
};

}  // namespace

RecoveredState RecoverState(const ShardMap& shards, const Mesh& mesh, std::span<const Tensor> ranks,
                            const Tensor& reference, const Tolerance& tolerance) {
  RecoveredState result;
  result.zero =
      std::all_of(ranks.begin(), ranks.end(), [](const Tensor& rank) { return MaxAbs(rank) == 0; });
  const State target = shards.Target(mesh);
  if (result.zero) {
    // Zero equals a zero reference under the target; of any other reference it is no multiple.
    if (MaxAbs(reference) == 0) {
      result.found = true;
      result.state = target;
      result.all = {target};
    }
    return result;
  }
  const Recovery recovery(mesh, ranks, reference, tolerance);
  for (const State& layout : AllLayouts(target, mesh)) recovery.Try(layout, target, result);
  return result;
}

}  // namespace sumonce

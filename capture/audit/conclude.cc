#include "capture/audit/conclude.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

constexpr double kNameTolerance = 1e-3;     // of a factor that is called by a group's size
constexpr double kFormedInFloat = 0x1p-22;  // factors as 1/tokens are formed in float32
using Kind = Action::Kind;

bool IsOne(double factor) { return std::fabs(factor - 1) <= kNameTolerance; }

// Right is what roundings explain, and no more: a divisor that is off by one token in thousands is
// a wrong scale. The roundings of very narrow types would explain anything; but they cancel out.
bool IsRight(double factor, double rounding) {
  return std::fabs(factor - 1) <= std::clamp(rounding, kFormedInFloat, kNameTolerance);
}

// Four digits of the factor, or of what it is off by.
std::string FactorText(double factor) {
  const double off = std::fabs(factor - 1);
  const int zeros = off > 0 && off < 0.01 ? static_cast<int>(std::ceil(-std::log10(off))) : 1;
  return absl::StrFormat("%.*g", std::min(3 + zeros, 12), factor);
}

class Table {
 public:
  explicit Table(const ParamGeometry& geometry) : geometry_(geometry) {}

  Conclusion Of(GradClass grad_class, const Action& action) const {
    Conclusion conclusion{.grad_class = grad_class,
                          .action = ActionName(action, geometry_),
                          .evidence = action.evidence};
    const auto wrong = [&](Mechanism mechanism, std::optional<Axis> axis, std::string coefficient) {
      conclusion.outcome = Outcome::kWrong;
      conclusion.mechanism = mechanism;
      conclusion.axis = axis;
      conclusion.coefficient = std::move(coefficient);
      return conclusion;
    };
    switch (action.kind) {
      case Kind::kOwn:
      case Kind::kSum:
        return OfMultiple(grad_class, action, std::move(conclusion));
      case Kind::kNotReduced:
        if (ReducedElsewhere(grad_class, action)) {
          return wrong(Mechanism::kWrongGroup, action.axis,
                       grad_class == GradClass::kShard ? "none: a mixture" : "none: per rank");
        }
        return wrong(Mechanism::kMissingSum, NearestMissing(grad_class, action), "none: per rank");
      case Kind::kWrongGroup:
        return wrong(Mechanism::kWrongGroup, action.axis, "none: per rank");
      case Kind::kLost:
        return wrong(Mechanism::kLostContribution, action.axis, "none: per rank");
      case Kind::kPerRank:
        return wrong(action.zero_somewhere ? Mechanism::kLostContribution : Mechanism::kWrongScale,
                     std::nullopt, "none: per rank");
      case Kind::kStale:
        return wrong(Mechanism::kStale, std::nullopt, "none: per rank");
      case Kind::kPermuted:
        return wrong(Mechanism::kWrongShard, action.axis, "none: per rank");
      case Kind::kMixture:
        if (grad_class == GradClass::kShard && action.crosses_tensor)
          return wrong(Mechanism::kMixedShards, geometry_.tensor_axis(), "none: a mixture");
        return wrong(Mechanism::kLostContribution, std::nullopt, "none: per rank");
      case Kind::kUnexplained:
        conclusion.operation = kFinalizer;
        conclusion.also = {Mechanism::kLostContribution, Mechanism::kStale, Mechanism::kWrongShard};
        return wrong(Mechanism::kUpstream, std::nullopt, "none: per rank");
    }
    return conclusion;
  }

  // The sum that the data axes miss was made over the tensor axis, which did not need it, or not
  // twice.
  bool ReducedElsewhere(GradClass grad_class, const Action& action) const {
    if (!action.crosses_tensor) return false;
    const bool needs_sum =
        grad_class == GradClass::kPartial || grad_class == GradClass::kEqualShare;
    return !needs_sum || IsOne(action.lambda / geometry_.tensor);
  }

  // Nothing was summed over data, and over the tensor axis neither.
  std::optional<Axis> NearestMissing(GradClass grad_class, const Action& action) const {
    const bool needs_sum =
        grad_class == GradClass::kPartial || grad_class == GradClass::kEqualShare;
    if (geometry_.tensor > 1 && needs_sum && !action.crosses_tensor) return geometry_.tensor_axis();
    if (action.axis == Axis::kEdp) return geometry_.data_axis;
    return action.axis;
  }

  // f is one multiple of own or of the sum: by class that is right, a factor, or no multiple of
  // what is needed.
  Conclusion OfMultiple(GradClass grad_class, const Action& action, Conclusion conclusion) const {
    const double n = geometry_.tensor;
    const bool sum = action.kind == Kind::kSum;
    double factor = action.lambda;
    switch (grad_class) {
      case GradClass::kPartial:
        if (!sum && n > 1) return Unsummed(action, std::move(conclusion));
        break;
      case GradClass::kShard:
        if (sum) {
          conclusion.outcome = Outcome::kWrong;
          conclusion.mechanism = Mechanism::kMixedShards;
          conclusion.axis = geometry_.tensor_axis();
          conclusion.coefficient = "none: a mixture";
          return conclusion;
        }
        break;
      case GradClass::kEqualShare:
        if (!sum) factor /= n;
        break;
      default:
        if (sum) factor *= n;
    }
    if (IsRight(factor, action.rounding * std::fabs(factor / action.lambda))) return conclusion;
    conclusion.outcome = Outcome::kWrong;
    conclusion.factor = factor;
    std::vector<Axis> axes;
    std::vector<int> sizes;
    if (grad_class != GradClass::kShard) {
      axes.push_back(geometry_.tensor_axis());
      sizes.push_back(geometry_.tensor);
    }
    for (size_t i = geometry_.data_axes.size(); i-- > 0;) {
      axes.push_back(geometry_.data_axis_names[i]);
      sizes.push_back(geometry_.data_axes[i]);
    }
    const NamedFactor named = NameFactor(factor, axes, sizes);
    conclusion.coefficient = named.text;
    conclusion.axis = named.axis;
    conclusion.mechanism =
        !named.axis          ? Mechanism::kWrongScale
        : named.exponent > 0 ? Mechanism::kDoubleSum
        : grad_class == GradClass::kEqualShare && *named.axis == geometry_.tensor_axis()
            ? Mechanism::kUnsummedShare
            : Mechanism::kAveraged;
    return conclusion;
  }

  // Partial, and each rank has its own: unless another group was summed a second time instead.
  Conclusion Unsummed(const Action& action, Conclusion conclusion) const {
    conclusion.outcome = Outcome::kWrong;
    conclusion.axis = geometry_.tensor_axis();
    conclusion.coefficient = "none: per rank";
    conclusion.mechanism = Mechanism::kMissingSum;
    if (geometry_.data > 1 && IsOne(action.lambda / geometry_.data)) {
      conclusion.mechanism = Mechanism::kWrongGroup;
      conclusion.evidence.push_back("summed over the data-parallel ranks a second time, not over " +
                                    std::string(Name(geometry_.tensor_axis())));
    }
    return conclusion;
  }

 private:
  const ParamGeometry& geometry_;
};

}  // namespace

Conclusion ConcludeOf(GradClass grad_class, const Action& action, const ParamGeometry& geometry) {
  return Table(geometry).Of(grad_class, action);
}

std::string ActionName(const Action& action, const ParamGeometry& geometry) {
  switch (action.kind) {
    case Kind::kOwn:
      return IsRight(action.lambda, action.rounding)
                 ? "none"
                 : absl::StrCat("times ", FactorText(action.lambda));
    case Kind::kSum:
      if (IsRight(action.lambda, action.rounding)) return "SUM";
      if (IsOne(action.lambda * geometry.tensor)) return "AVG";
      if (IsOne(action.lambda / geometry.tensor)) return "SUM twice";
      return absl::StrCat("SUM times ", FactorText(action.lambda));
    case Kind::kNotReduced:
      return "none";
    case Kind::kWrongGroup:
      return "SUM over other ranks";
    case Kind::kLost:
      return "SUM without some terms";
    default:
      return "";
  }
}

std::string WordOf(const Conclusion& conclusion) {
  if (conclusion.outcome == Outcome::kRight) return "RIGHT";
  return std::string(Name(conclusion.mechanism));
}

NamedFactor NameFactor(double factor, const std::vector<Axis>& axes,
                       const std::vector<int>& sizes) {
  for (const int exponent : {1, -1, 2, -2}) {
    for (size_t i = 0; i < axes.size(); ++i) {
      if (sizes[i] == 1 || !IsOne(factor / std::pow(sizes[i], exponent))) continue;
      const std::string name(Name(axes[i]));
      const std::string power = std::abs(exponent) == 2 ? name + "^2" : name;
      return {axes[i], exponent, exponent > 0 ? power : "1/" + power};
    }
  }
  return {std::nullopt, 0, FactorText(factor)};
}

void NameScale(double factor, const ParamGeometry& geometry, Conclusion& conclusion) {
  std::vector<Axis> axes = {geometry.tensor_axis()};
  std::vector<int> sizes = {geometry.tensor};
  axes.insert(axes.end(), geometry.data_axis_names.begin(), geometry.data_axis_names.end());
  sizes.insert(sizes.end(), geometry.data_axes.begin(), geometry.data_axes.end());
  const NamedFactor named = NameFactor(factor, axes, sizes);
  conclusion.mechanism = !named.axis          ? Mechanism::kWrongScale
                         : named.exponent > 0 ? Mechanism::kDoubleSum
                                              : Mechanism::kAveraged;
  conclusion.axis = named.axis;
  conclusion.coefficient = named.text;
  conclusion.factor = factor;
  conclusion.also = {Mechanism::kWrongScale};
}

}  // namespace sumonce::capture

// The action table: what was needed (the class) against what was done gives the mechanism (theory
// section 6; verify/judge.h has the same table for states).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/audit/action.h"
#include "capture/audit/geometry.h"
#include "verify/verdict.h"

namespace sumonce::capture {

// The operation that is named where the finalizer itself made what nothing explains.
inline constexpr char kFinalizer[] = "the finalizer";

// What follows if the gradient was of this class before the finalizer; of an unknown class:
// whatever it was.
struct Conclusion {
  GradClass grad_class = GradClass::kUnknown;
  std::optional<Axis> complete_over;  // and if it was complete over this data axis, too
  Outcome outcome = Outcome::kRight;
  Mechanism mechanism = Mechanism::kNone;
  std::optional<Axis> axis;
  std::string coefficient;
  std::optional<double> factor;
  std::string action;
  std::string operation;  // where it went wrong, if that is known
  std::vector<std::string> evidence;
  std::vector<Mechanism> also;  // what fits as well

  bool any_class() const { return grad_class == GradClass::kUnknown; }
  bool SameClass(const Conclusion& other) const {
    return grad_class == other.grad_class && complete_over == other.complete_over;
  }
};

// `grad_class` along the tensor axis; along data every class needs the sum. Where that axis has
// size one, partial and complete are the same.
Conclusion ConcludeOf(GradClass grad_class, const Action& action, const ParamGeometry& geometry);

// "none", "SUM", "AVG", "SUM twice", "times 3".
std::string ActionName(const Action& action, const ParamGeometry& geometry);

// The word of a conclusion in a set of possibilities: "RIGHT" or its mechanism.
std::string WordOf(const Conclusion& conclusion);

// What a result is of the needed one, named by the group sizes: "tp", "1/dp", "tp^2", "0.3333".
// `axes`, `sizes`: in order of preference.
struct NamedFactor {
  std::optional<Axis> axis;  // none: no power of one size
  int exponent = 0;
  std::string text;
};
NamedFactor NameFactor(double factor, const std::vector<Axis>& axes, const std::vector<int>& sizes);

// Fills in what a factor on all ranks is called, by the size of a group if it is one: axis,
// coefficient, mechanism, and what fits as well.
void NameScale(double factor, const ParamGeometry& geometry, Conclusion& conclusion);

}  // namespace sumonce::capture

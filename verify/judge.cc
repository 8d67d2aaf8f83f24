#include "verify/judge.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace sumonce {
namespace {

constexpr Axis kAxes[] = {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp};

// What is wrong along one atomic axis.
enum class AxisFault { kNone, kUnsummed, kMixed, kExcess, kShortfall, kScaled };

AxisFault FaultAlong(const State& target, const State& before, const State& after,
                     const Scale& sound, int a) {
  if (after[a].layout == Layout::kMixed) return AxisFault::kMixed;
  if (after[a].layout == Layout::kPartial) return AxisFault::kUnsummed;
  if (after[a].layout != target[a].layout) return AxisFault::kMixed;
  const int exponent = after.scale.exponent(a);
  if (exponent == 0) return AxisFault::kNone;
  // The factor was there before the finalizer, which then did what the class needs: no action cures
  // it. Only 1/n on equal copies has a name of its own, the equal share.
  const bool arrived = before.scale.exponent(a) - sound.exponent(a) == exponent;
  const bool equal_share = before[a].layout == Layout::kEqual && exponent < 0;
  if (arrived && !equal_share) return AxisFault::kScaled;
  return exponent > 0 ? AxisFault::kExcess : AxisFault::kShortfall;
}

std::vector<int> AtomicOf(const Mesh& mesh, Axis axis) { return mesh.GroupOf(axis).atomic; }

Axis AxisOf(const Mesh& mesh, int a) {
  for (Axis axis : kAxes) {
    for (int inside : AtomicOf(mesh, axis)) {
      if (inside == a) return axis;
    }
  }
  return Axis::kTp;
}

Mechanism MechanismOf(AxisFault fault, GradClass grad_class) {
  switch (fault) {
    case AxisFault::kNone:
      return Mechanism::kNone;
    case AxisFault::kUnsummed:
      return Mechanism::kMissingSum;
    case AxisFault::kMixed:
      return Mechanism::kMixedShards;
    case AxisFault::kExcess:
      return Mechanism::kDoubleSum;
    case AxisFault::kShortfall:
      return grad_class == GradClass::kEqualShare ? Mechanism::kUnsummedShare
                                                  : Mechanism::kAveraged;
    case AxisFault::kScaled:
      return Mechanism::kWrongScale;
  }
  return Mechanism::kNone;
}

struct Faults {
  int unsummed = -1, mixed = -1, excess = -1, shortfall = -1, scaled = -1;
};

Faults Collect(const State& target, const State& before, const State& after, const Scale& sound,
               const Mesh& mesh) {
  Faults faults;
  for (int a = static_cast<int>(mesh.atomic().size()) - 1; a >= 0; --a) {
    switch (FaultAlong(target, before, after, sound, a)) {
      case AxisFault::kNone:
        break;
      case AxisFault::kUnsummed:
        faults.unsummed = a;
        break;
      case AxisFault::kMixed:
        faults.mixed = a;
        break;
      case AxisFault::kExcess:
        faults.excess = a;
        break;
      case AxisFault::kShortfall:
        faults.shortfall = a;
        break;
      case AxisFault::kScaled:
        faults.scaled = a;
        break;
    }
  }
  return faults;
}

}  // namespace

void SetJudgement(const Judgement& judgement, Proof& proof) {
  proof.outcome = judgement.outcome;
  proof.mechanism = judgement.mechanism;
  proof.axis = judgement.axis;
  proof.coefficient = judgement.coefficient;
  proof.factor = judgement.factor;
  proof.grad_class = judgement.grad_class;
  proof.action = judgement.action;
}

GradClass ClassOf(const State& before, const Scale& sound_scale, Axis axis, const Mesh& mesh) {
  const std::vector<int> atomic = AtomicOf(mesh, axis);
  if (before.lost || atomic.empty()) return GradClass::kUnknown;
  const int a = atomic[0];
  switch (before[a].layout) {
    case Layout::kShard:
      return GradClass::kShard;
    case Layout::kPartial:
      return GradClass::kPartial;
    case Layout::kEqual:
      return before.scale.exponent(a) - sound_scale.exponent(a) < 0 ? GradClass::kEqualShare
                                                                    : GradClass::kComplete;
    default:
      return GradClass::kUnknown;
  }
}

std::string ActionOf(const State& before, const State& after, Axis axis, const Mesh& mesh) {
  const std::vector<int> atomic = AtomicOf(mesh, axis);
  if (atomic.empty() || before.lost || after.lost) return "";
  const int a = atomic[0];
  const int gained = after.scale.exponent(a) - before.scale.exponent(a);
  const bool moved = before[a].layout != after[a].layout;
  if (!moved && gained == 0) return before[a].layout == Layout::kEqual ? "none or AVG" : "none";
  if (!moved && before[a].layout != Layout::kEqual) {
    return absl::StrCat("times ", Scale::SizeOfAxis(a, gained).Describe(mesh));
  }
  // A sum turns P into E and S into M without a factor, and gives E one; an average is a sum and a
  // factor 1/n.
  const int sums = moved ? gained + 1 : gained;
  if (sums == 0) return "AVG";
  if (sums < 0) return sums == -1 ? "AVG after /n" : absl::StrCat("AVG after /n^", -sums);
  if (sums <= 2) return sums == 1 ? "SUM" : "SUM twice";
  return absl::StrCat("SUM ", sums, " times");
}

Judgement Judge(const State& target, const State& before, const State& after,
                const Scale& sound_scale, const Mesh& mesh) {
  Judgement judgement;
  const Faults faults = Collect(target, before, after, sound_scale, mesh);
  int at = -1;
  AxisFault fault = AxisFault::kNone;
  for (auto [axis, kind] : {std::pair{faults.mixed, AxisFault::kMixed},
                            {faults.unsummed, AxisFault::kUnsummed},
                            {faults.scaled, AxisFault::kScaled},
                            {faults.excess, AxisFault::kExcess},
                            {faults.shortfall, AxisFault::kShortfall}}) {
    if (at >= 0 || axis < 0) continue;
    at = axis;
    fault = kind;
  }
  const Axis axis = at < 0 ? Axis::kTp : AxisOf(mesh, at);
  judgement.grad_class = ClassOf(before, sound_scale, axis, mesh);
  judgement.action = ActionOf(before, after, axis, mesh);
  if (at < 0 && after.scale.IsOne()) return judgement;
  judgement.outcome = Outcome::kWrong;
  judgement.coefficient = after.scale.Describe(mesh);
  judgement.factor = after.scale.Evaluate(mesh);
  if (at < 0) {
    judgement.mechanism = Mechanism::kWrongScale;  // a plain number
    return judgement;
  }
  judgement.axis = axis;
  judgement.mechanism = MechanismOf(fault, judgement.grad_class);
  if (faults.unsummed >= 0) judgement.coefficient = "none: per rank";
  if (faults.mixed >= 0) judgement.coefficient = "none: a mixture";
  if (faults.unsummed >= 0 || faults.mixed >= 0) judgement.factor.reset();
  // The sum that one axis misses was made over another: the rule reduces over the wrong ranks.
  if (faults.unsummed >= 0 && (faults.excess >= 0 || faults.mixed >= 0)) {
    judgement.mechanism = Mechanism::kWrongGroup;
    judgement.axis = AxisOf(mesh, faults.unsummed);
    judgement.grad_class = ClassOf(before, sound_scale, *judgement.axis, mesh);
    judgement.action = ActionOf(before, after, *judgement.axis, mesh);
  }
  return judgement;
}

}  // namespace sumonce

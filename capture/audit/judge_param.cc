#include "capture/audit/judge_param.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

constexpr double kOneTolerance = 1e-3;  // of a factor that is meant to be one
using Kind = Action::Kind;

bool IsOne(double factor) { return std::fabs(factor - 1) <= kOneTolerance; }

class ParamJudge {
 public:
  explicit ParamJudge(const JudgeInputs& inputs) : inputs_(inputs), geometry_(*inputs.geometry) {}

  absl::StatusOr<ParamJudgement> Run() {
    judgement_.step = inputs_.step->step();
    if (!geometry_.conflict.empty()) return NoStatement(geometry_.conflict);
    SUMONCE_ASSIGN_OR_RETURN(measure_, MeasureParam(*inputs_.step, geometry_, inputs_.options));
    judgement_.shape =
        absl::StrCat("[", absl::StrJoin(measure_.shape, ", "), "] ", ToAbsl(Name(measure_.dtype)));
    judgement_.figures = measure_.holders;
    if (measure_.shapes_differ)
      return NoStatement(absl::StrCat("its shape is not the same: ", measure_.shapes_text));
    PerRank();
    if (!measure_.not_finite.empty()) return NotFinite();
    if (measure_.contributions_missing) return WithoutContributions();
    judgement_.over_tensor = measure_.over_tensor;
    judgement_.weights_equal = measure_.weights_known && measure_.weights_equal;
    if (measure_.contributions_zero && measure_.finalized_zero) {
      judgement_.no_evidence = true;
      return std::move(judgement_);
    }
    FindClasses();
    SUMONCE_RETURN_IF_ERROR(FindWhatWasDone());
    if (actions_.empty()) return NoStatement(WhatIsMissing());
    Conclude();
    return std::move(judgement_);
  }

 private:
  ParamJudgement NoStatement(std::string reason) {
    judgement_.no_statement = std::move(reason);
    return std::move(judgement_);
  }

  bool Fits(Fit fit) const { return measure_.fits[static_cast<int>(fit)]; }

  std::string WhatIsMissing() const {
    std::vector<int> missing, without;
    for (const Holder& holder : geometry_.holders) {
      if (holder.rank >= 0 && holder.param < 0) without.push_back(holder.rank);
    }
    return without.empty()
               ? absl::StrCat("terms of it are in missing files: those of rank ",
                              RanksText(inputs_.step->missing()))
               : absl::StrCat("rank ", RanksText(without),
                              " should hold it by the mesh, and its file does not have it");
  }

  ParamJudgement NotFinite() {
    Conclusion conclusion{.outcome = Outcome::kWrong,
                          .mechanism = Mechanism::kNotFinite,
                          .coefficient = "none: per rank",
                          .evidence = {measure_.not_finite}};
    judgement_.conclusions.push_back(std::move(conclusion));
    return std::move(judgement_);
  }

  // Only the result is there: equal copies are all that can be asked for.
  ParamJudgement WithoutContributions() {
    const bool replicated = geometry_.cut == CutKnown::kReplicated;
    const bool part = measure_.finalized_copies == Likeness::kUnequal ||
                      (replicated && measure_.finalized_tensor == Likeness::kUnequal);
    if (!part) return NoStatement("its contributions are not in the files");
    Conclusion conclusion{.outcome = Outcome::kWrong,
                          .mechanism = Mechanism::kReplicaDrift,
                          .axis = measure_.finalized_copies == Likeness::kUnequal
                                      ? DataAxis()
                                      : geometry_.tensor_axis(),
                          .coefficient = "none: per rank",
                          .evidence = {"copies of one weight end with different gradients; what "
                                       "went in is not in the files"}};
    judgement_.conclusions.push_back(std::move(conclusion));
    return std::move(judgement_);
  }

  Axis DataAxis() const {
    // Experts' copies that are apart along tp alone: that is how people call it.
    if (geometry_.expert) return ExpertDataAxis();
    for (size_t i = geometry_.data_axes.size(); i-- > 0;) {
      if (geometry_.data_axes[i] > 1) return geometry_.data_axis_names[i];
    }
    return Axis::kDp;
  }

  Axis ExpertDataAxis() const {
    bool tp = false, others = false;
    const Holder* first = nullptr;
    for (const Holder& holder : geometry_.holders) {
      if (holder.rank < 0) continue;
      if (first == nullptr) first = &holder;
      const Manifest& a = inputs_.step->Identity(holder.rank);
      const Manifest& b = inputs_.step->Identity(first->rank);
      tp |= a.Coordinate("tp") != b.Coordinate("tp");
      others |=
          a.Coordinate("dp") != b.Coordinate("dp") || a.Coordinate("cp") != b.Coordinate("cp");
    }
    return tp && !others ? Axis::kTp : Axis::kEdp;
  }

  void PerRank() {
    for (int h = 0; h < geometry_.count(); ++h) {
      const Holder& holder = geometry_.holders[h];
      if (!holder.present()) continue;
      const HolderFigures& figures = measure_.holders[h];
      const std::string contributed =
          figures.contribution_square == 0
              ? "nothing"
              : absl::StrFormat("norm %.4g", std::sqrt(figures.contribution_square));
      const std::string ended =
          figures.owned == 0 ? "owns none of it"
          : figures.finalized_square == 0
              ? "ends exactly zero"
              : absl::StrFormat("ends with norm %.4g", std::sqrt(figures.finalized_square));
      judgement_.per_rank.push_back(
          absl::StrCat("rank ", holder.rank, ": contributed ", contributed, ", ", ended));
    }
  }

  // --- classes ---------------------------------------------------------------------------------

  void Because(std::string sentence) { judgement_.class_evidence.push_back(std::move(sentence)); }

  std::string Tensor() const { return std::string(Name(geometry_.tensor_axis())); }

  void FindClasses() {
    if (geometry_.tensor == 1) {
      classes_ = {GradClass::kPartial};
      return;
    }
    if (geometry_.cut == CutKnown::kShard) {
      classes_ = {GradClass::kShard};
      Because(absl::StrCat("the file says that it is cut over ", Tensor()));
      return;
    }
    std::optional<bool> replicated = inputs_.replicated;
    if (geometry_.cut == CutKnown::kReplicated) replicated = true;
    if (!replicated && inputs_.hint && inputs_.hint->grad_class != GradClass::kUnknown)
      replicated = inputs_.hint->grad_class != GradClass::kShard;
    if (!replicated && inputs_.first_step && measure_.weights_known && !measure_.weights_constant) {
      replicated = measure_.weights_equal;
      Because(measure_.weights_equal
                  ? "its weights are equal on all ranks, so it is replicated"
                  : absl::StrCat("its weights differ along ", Tensor(), ", so it is cut"));
    }
    if (replicated && !*replicated) {
      classes_ = {GradClass::kShard};
      return;
    }
    judgement_.weights_drifted = replicated && measure_.weights_known && !measure_.weights_equal;
    OfReplicated(replicated.has_value());
    judgement_.replicas_part = replicated && measure_.finalized_tensor == Likeness::kUnequal;
  }

  void OfReplicated(bool certain) {
    switch (measure_.over_tensor) {
      case Likeness::kEqual:
        classes_ = {GradClass::kComplete, GradClass::kEqualShare};
        Because(absl::StrCat("the ranks of ", Tensor(), " contribute the same"));
        break;
      case Likeness::kUnequal:
        OfDifferent(certain);
        break;
      default:
        classes_ = {GradClass::kPartial, GradClass::kComplete, GradClass::kEqualShare};
        if (!certain) classes_.push_back(GradClass::kShard);
        Because(measure_.over_tensor == Likeness::kNear
                    ? "the ranks' contributions are neither equal nor clearly different"
                    : "there is no other rank's contribution to compare with");
    }
    TakeHint();
  }

  void OfDifferent(bool certain) {
    classes_ = {GradClass::kPartial};
    if (judgement_.weights_drifted) {
      classes_.push_back(GradClass::kComplete);
      Because("the ranks contribute differently, but their weights differ already");
      return;
    }
    if (!certain) {
      classes_.push_back(GradClass::kShard);
      Because(
          absl::StrCat("the ranks contribute differently, and nothing says whether it is cut "
                       "over ",
                       Tensor()));
      return;
    }
    const auto mixed = [](const LineCounts& lines) { return lines.equal > 0 && lines.unequal > 0; };
    if (mixed(measure_.rows) || mixed(measure_.columns)) {
      judgement_.mixed_lines = true;
      const bool rows = mixed(measure_.rows);
      const LineCounts& lines = rows ? measure_.rows : measure_.columns;
      Because(absl::StrCat("of its ", rows ? "rows " : "columns ", lines.equal,
                           " are the same on all ranks of ", Tensor(), " (complete) and ",
                           lines.unequal, " are not (partial)"));
      return;
    }
    Because(measure_.weights_known ? "equal weights, and the ranks contribute differently"
                                   : "replicated, and the ranks contribute differently");
  }

  // A hint narrows what the numbers leave open; it never widens it.
  void TakeHint() {
    if (!inputs_.hint) return;
    const GradClass hinted = inputs_.hint->grad_class;
    if (hinted == GradClass::kUnknown) return;
    if (std::find(classes_.begin(), classes_.end(), hinted) == classes_.end()) {
      Because(absl::StrCat("overruled by that: ", inputs_.hint->source, " says ",
                           ToAbsl(Name(hinted))));
      return;
    }
    if (classes_.size() == 1) return;
    classes_ = {hinted};
    Because(absl::StrCat(inputs_.hint->source, ": ", ToAbsl(Name(hinted))));
  }

  // --- what was done ---------------------------------------------------------------------------

  absl::Status FindWhatWasDone() {
    if (Fits(Fit::kOwn)) actions_.push_back({.kind = Kind::kOwn});
    if (geometry_.tensor > 1) {
      if (Fits(Fit::kSum)) actions_.push_back({.kind = Kind::kSum, .of_sum = true});
      if (Fits(Fit::kAvg)) {
        actions_.push_back({.kind = Kind::kSum, .lambda = 1.0 / geometry_.tensor, .of_sum = true});
      }
    }
    if (!actions_.empty()) return absl::OkStatus();
    if (!geometry_.complete()) {
      // What one rank alone can tell: its own contribution, as it was.
      if ((Fits(Fit::kRaw) || Fits(Fit::kScaled)) && geometry_.data > 1) NotReduced();
      return absl::OkStatus();
    }
    if (Fits(Fit::kRaw) || Fits(Fit::kScaled)) {
      NotReduced();
      return absl::OkStatus();
    }
    SUMONCE_ASSIGN_OR_RETURN(actions_, FindActions({.step = inputs_.step,
                                                    .previous = inputs_.previous,
                                                    .geometry = inputs_.geometry,
                                                    .measure = &measure_,
                                                    .options = inputs_.options}));
    return absl::OkStatus();
  }

  void NotReduced() {
    Action action{.kind = Kind::kNotReduced, .axis = geometry_.data > 1 ? DataAxis() : Axis::kPp};
    action.evidence.push_back(
        Fits(Fit::kRaw) ? "each rank ends with exactly what it contributed"
                        : "each rank ends with its own contribution, scaled and not summed");
    actions_.push_back(std::move(action));
  }

  // --- conclusions -----------------------------------------------------------------------------

  void Conclude() {
    if (judgement_.mixed_lines || (inputs_.hint && inputs_.hint->mixed_use)) return MixedUse();
    for (const GradClass grad_class : classes_) {
      std::optional<Conclusion> best;
      for (const Action& action : actions_) {
        Conclusion conclusion = Of(grad_class, action);
        if (!best || conclusion.outcome == Outcome::kRight) best = std::move(conclusion);
        if (best->outcome == Outcome::kRight) break;
      }
      const bool right = best->outcome == Outcome::kRight;
      judgement_.by_difference_alone |=
          classes_.size() == 1 && grad_class == GradClass::kPartial && geometry_.tensor > 1 &&
          best->mechanism == Mechanism::kMissingSum && best->axis == geometry_.tensor_axis();
      judgement_.conclusions.push_back(*std::move(best));
      if (right) CompleteOverData(grad_class);
    }
  }

  void MixedUse() {
    Conclusion conclusion{.outcome = Outcome::kWrong,
                          .mechanism = Mechanism::kMixedUse,
                          .axis = geometry_.tensor_axis(),
                          .coefficient = "none: a mixture",
                          .action = ActionName(actions_.front())};
    if (!judgement_.mixed_lines) conclusion.evidence.push_back(inputs_.hint->source);
    judgement_.conclusions.push_back(std::move(conclusion));
  }

  // Equal contributions along a data axis: each may be its own tokens' term, by chance the same, or
  // all the whole already.
  void CompleteOverData(GradClass grad_class) {
    for (size_t i = 0; i < measure_.over_data.size(); ++i) {
      if (measure_.over_data[i] != Likeness::kEqual || geometry_.data_axes[i] == 1) continue;
      const Axis axis = geometry_.data_axis_names[i];
      judgement_.conclusions.push_back({.grad_class = grad_class,
                                        .complete_over = axis,
                                        .outcome = Outcome::kWrong,
                                        .mechanism = Mechanism::kDoubleSum,
                                        .axis = axis,
                                        .coefficient = std::string(Name(axis)),
                                        .factor = geometry_.data_axes[i],
                                        .action = "SUM"});
      Because(absl::StrCat("the ranks of ", ToAbsl(Name(axis)),
                           " contribute the same: the same tokens, or a gradient that was whole"));
    }
  }

  Conclusion Of(GradClass grad_class, const Action& action) {
    Conclusion conclusion{
        .grad_class = grad_class, .action = ActionName(action), .evidence = action.evidence};
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
        return wrong(Mechanism::kWrongShard, std::nullopt, "none: per rank");
      case Kind::kMixture:
        if (grad_class == GradClass::kShard && action.crosses_tensor)
          return wrong(Mechanism::kMixedShards, geometry_.tensor_axis(), "none: a mixture");
        return wrong(Mechanism::kLostContribution, std::nullopt, "none: per rank");
      case Kind::kUnexplained:
        return wrong(Mechanism::kLostContribution, std::nullopt, "none: per rank");
    }
    return conclusion;
  }

  // Nothing was summed over data, and over the tensor axis neither.
  std::optional<Axis> NearestMissing(GradClass grad_class, const Action& action) const {
    const bool needs_sum =
        grad_class == GradClass::kPartial || grad_class == GradClass::kEqualShare;
    if (geometry_.tensor > 1 && needs_sum && !action.crosses_tensor) return geometry_.tensor_axis();
    if (action.axis == Axis::kEdp) return ExpertDataAxis();
    return action.axis;
  }

  // f is one multiple of own or of the sum: by class that is right, a factor, or no multiple of
  // what is needed.
  Conclusion OfMultiple(GradClass grad_class, const Action& action, Conclusion conclusion) {
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
    if (IsOne(factor)) return conclusion;
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
                                    Tensor());
    }
    return conclusion;
  }

  std::string ActionName(const Action& action) const {
    switch (action.kind) {
      case Kind::kOwn:
        return IsOne(action.lambda) ? "none" : absl::StrFormat("times %.4g", action.lambda);
      case Kind::kSum:
        if (IsOne(action.lambda)) return "SUM";
        if (IsOne(action.lambda * geometry_.tensor)) return "AVG";
        if (IsOne(action.lambda / geometry_.tensor)) return "SUM twice";
        return absl::StrFormat("SUM times %.4g", action.lambda);
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

  const JudgeInputs& inputs_;
  const ParamGeometry& geometry_;
  Measure measure_;
  ParamJudgement judgement_;
  std::vector<GradClass> classes_;
  std::vector<Action> actions_;
};

}  // namespace

absl::StatusOr<ParamJudgement> JudgeParam(const JudgeInputs& inputs) {
  return ParamJudge(inputs).Run();
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
  return {std::nullopt, 0, absl::StrFormat("%.4g", factor)};
}

}  // namespace sumonce::capture

#include "capture/audit/judge_param.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/audit/agreement.h"
#include "capture/audit/buffers.h"
#include "capture/audit/classes.h"
#include "capture/audit/interpret.h"

namespace sumonce::capture {
namespace {

using Kind = Action::Kind;

constexpr double kWiden = 1.5;  // a bound that is asked for in another order of operations

// "rank 2: ..." before "rank 10: ...": the grid's order is another than that of ranks.
bool ByRank(const std::string& a, const std::string& b) {
  const size_t x = a.find(':'), y = b.find(':');
  return x != y ? x < y : a < b;
}

class ParamJudge {
 public:
  explicit ParamJudge(const JudgeInputs& inputs)
      : inputs_(inputs), geometry_(*inputs.geometry), options_(inputs.options) {}

  absl::StatusOr<ParamJudgement> Run() {
    judgement_.step = inputs_.step->step();
    judgement_.cut = geometry_.cut;
    if (!geometry_.conflict.empty()) return NoStatement(geometry_.conflict);
    if (inputs_.step->KindNumber("finalized") < 0) TakeProbe();
    SUMONCE_ASSIGN_OR_RETURN(measure_, MeasureParam(*inputs_.step, geometry_, options_));
    judgement_.shape =
        absl::StrCat("[", absl::StrJoin(measure_.shape, ", "), "] ", ToAbsl(Name(measure_.dtype)));
    if (measure_.shapes_differ)
      return NoStatement(absl::StrCat("its shape is not the same: ", measure_.shapes_text));
    judgement_.figures = measure_.holders;
    if (probed_) ForgetClasses();
    PerRank();
    std::sort(judgement_.per_rank.begin(), judgement_.per_rank.end(), ByRank);
    if (!measure_.not_finite.empty()) return NotFinite();
    if (std::string gap = UnownedText(*inputs_.step, geometry_, measure_.elements); !gap.empty())
      return Unowned(std::move(gap));
    if (measure_.contributions_missing && (inputs_.reference == nullptr || probed_))
      return WithoutContributions();
    judgement_.over_tensor = measure_.over_tensor;
    judgement_.replicas_part = measure_.finalized_copies == Likeness::kUnequal;
    std::optional<ReferenceFigures> figures;
    if (inputs_.reference != nullptr && !probed_) {
      SUMONCE_ASSIGN_OR_RETURN(
          figures, inputs_.reference->Compare(*inputs_.step, geometry_, measure_, options_));
      judgement_.not_compared = figures->problem;
      // Two shapes say how it is cut.
      if (figures->problem.empty() && geometry_.cut == CutKnown::kUnknown)
        geometry_.cut = figures->cut ? CutKnown::kShard : CutKnown::kReplicated;
    }
    if (measure_.contributions_missing) {
      return figures->problem.empty() ? ResultAgainst(*figures) : WithoutContributions();
    }
    TakeClasses();
    SUMONCE_ASSIGN_OR_RETURN(
        buffers_, CheckBuffers(*inputs_.step, inputs_.previous, geometry_, measure_, options_));
    if (figures && figures->problem.empty()) return Against(*figures);
    return Alone();
  }

 private:
  // --- without a reference ---------------------------------------------------------------------

  absl::StatusOr<ParamJudgement> Alone() {
    if (measure_.contributions_zero && measure_.finalized_zero) {
      SUMONCE_ASSIGN_OR_RETURN(const bool probed, Probe());
      judgement_.no_evidence = !probed;
      if (!probed) return std::move(judgement_);
    }
    SUMONCE_RETURN_IF_ERROR(FindWhatWasDone());
    if (actions_.empty()) return NoStatement(WhatIsMissing());
    if (buffers_.fault) return BufferWrong();
    Conclude();
    if (buffers_.mixed_uses && !judgement_.mixed_lines) {
      Because(absl::StrCat("its uses are not alike: ", buffers_.uses));
      MixedUse();
    }
    return std::move(judgement_);
  }

  void TakeProbe() {
    options_.contribution = "probe_contribution";
    options_.finalized = "probe_finalized";
    probed_ = true;
  }

  // Asks the probe where the step's own gradients are zero. False: there is none of this parameter.
  absl::StatusOr<bool> Probe() {
    const Measure real = measure_;
    TakeProbe();
    SUMONCE_ASSIGN_OR_RETURN(measure_, MeasureParam(*inputs_.step, geometry_, options_));
    const bool usable = !measure_.shapes_differ && !measure_.contributions_missing &&
                        !measure_.contributions_zero && measure_.not_finite.empty();
    if (!usable) measure_ = real;
    probed_ = usable;
    if (usable) Because("its gradients are zero; what the finalizer does is known from the probe");
    return usable;
  }

  ParamJudgement BufferWrong() {
    Conclusion conclusion{.outcome = Outcome::kWrong,
                          .mechanism = buffers_.fault->mechanism,
                          .coefficient = "none: per rank",
                          .evidence = buffers_.fault->evidence};
    // A factor on all ranks is one name for it, too.
    if (conclusion.mechanism == Mechanism::kLocalGradient)
      conclusion.also = {Mechanism::kWrongScale};
    judgement_.conclusions.push_back(std::move(conclusion));
    return std::move(judgement_);
  }

  // --- against a reference ---------------------------------------------------------------------

  absl::StatusOr<ParamJudgement> Against(const ReferenceFigures& figures) {
    const double rtol = options_.rtol.value_or(DefaultRtol(measure_.roundoff));
    const Interpretation found = Interpret(figures, geometry_, measure_, rtol);
    judgement_.against = true;
    judgement_.reference_error = found.worst_error;
    judgement_.partly_right = figures.rows_right > 0 && figures.rows_wrong > 0;
    judgement_.per_rank = found.per_rank;
    std::sort(judgement_.per_rank.begin(), judgement_.per_rank.end(), ByRank);
    for (const sumonce::capture::Against& one : figures.finalized)
      judgement_.ratios.push_back(one.x_square < 0 ? -1 : one.ratio());
    if (found.zero && measure_.contributions_zero) {
      judgement_.no_evidence = true;
      return std::move(judgement_);
    }
    if (found.right) return AlikeInTheNorm(found);
    SUMONCE_RETURN_IF_ERROR(FindWhatWasDone());
    if (!found.relation.empty()) evidence_.push_back(found.relation);
    if (measure_.contributions_zero || !figures.contributions || actions_.empty())
      return Upstream("what the ranks contributed is zero, the reference's gradient is not");
    if (found.grad_class != GradClass::kUnknown) {
      Because(absl::StrCat("by the reference its class is ", ToAbsl(Name(found.grad_class)),
                           found.nearest ? ", nearly" : ""));
      classes_ = {found.grad_class};
      Conclude();
      Conclusion& conclusion = judgement_.conclusions.front();
      const bool right = conclusion.outcome == Outcome::kRight;
      if (!right && !(found.nearest && (buffers_.fault || buffers_.mixed_uses)))
        return WithEvidence(found);
      if (right && !found.nearest && found.lambda != 1) return Scaled(found);
      judgement_.conclusions.clear();
    }
    if (buffers_.fault) return BufferWrong();
    if (buffers_.mixed_uses) {
      evidence_.push_back(buffers_.uses);
      MixedUse();
      return WithEvidence(found);
    }
    return Upstream(
        "what the ranks contributed is no term, copy or slice of the reference's "
        "gradient");
  }

  // Only the result is there, and what it should be: right, a factor, or no multiple of it.
  ParamJudgement ResultAgainst(const ReferenceFigures& figures) {
    const double rtol = options_.rtol.value_or(DefaultRtol(measure_.roundoff));
    const Interpretation found = Interpret(figures, geometry_, measure_, rtol);
    judgement_.against = true;
    judgement_.reference_error = found.worst_error;
    judgement_.per_rank = found.per_rank;
    for (const sumonce::capture::Against& one : figures.finalized)
      judgement_.ratios.push_back(one.x_square < 0 ? -1 : one.ratio());
    judgement_.no_evidence = found.zero;
    if (found.zero) return std::move(judgement_);
    Because("its contributions are not in the files");
    Conclusion conclusion;
    if (!found.right) {
      conclusion.outcome = Outcome::kWrong;
      conclusion.mechanism = Mechanism::kUpstream;
      conclusion.coefficient = "none: per rank";
      conclusion.also = {Mechanism::kMissingSum, Mechanism::kLostContribution,
                         Mechanism::kWrongShard};
      if (found.factor != 0) NameScale(found.factor, geometry_, conclusion);
      if (measure_.finalized_zero) {
        conclusion.mechanism = Mechanism::kLostContribution;
        conclusion.also.clear();
      }
      if (!found.relation.empty()) conclusion.evidence.push_back(found.relation);
    }
    judgement_.conclusions.push_back(std::move(conclusion));
    return std::move(judgement_);
  }

  ParamJudgement WithEvidence(const Interpretation& found) {
    Conclusion& conclusion = judgement_.conclusions.front();
    judgement_.conclusions.resize(1);
    conclusion.evidence.insert(conclusion.evidence.end(), evidence_.begin(), evidence_.end());
    if (found.nearest) conclusion.evidence.push_back("its gradient arrives wrong as well");
    return std::move(judgement_);
  }

  ParamJudgement AsTheReference(const Interpretation& found) {
    if (found.grad_class != GradClass::kUnknown && !found.nearest) classes_ = {found.grad_class};
    for (const GradClass grad_class : classes_)
      judgement_.conclusions.push_back({.grad_class = grad_class});
    return std::move(judgement_);
  }

  // The norm does not see single elements and small factors: what was done is looked at, too.
  absl::StatusOr<ParamJudgement> AlikeInTheNorm(const Interpretation& found) {
    if (found.grad_class == GradClass::kUnknown || found.nearest || found.lambda != 1)
      return AsTheReference(found);
    SUMONCE_RETURN_IF_ERROR(FindWhatWasDone());
    classes_ = {found.grad_class};
    Conclude();
    if (judgement_.conclusions.front().outcome == Outcome::kWrong) {
      evidence_.push_back("in the norm it is the reference's, within the tolerance");
      return WithEvidence(found);
    }
    judgement_.conclusions.clear();
    return AsTheReference(found);
  }

  // The finalizer did what the class needs; the factor was there before.
  ParamJudgement Scaled(const Interpretation& found) {
    Conclusion& conclusion = judgement_.conclusions.front();
    judgement_.conclusions.resize(1);
    conclusion.outcome = Outcome::kWrong;
    NameScale(found.lambda, geometry_, conclusion);
    conclusion.mechanism = Mechanism::kWrongScale;
    conclusion.also.clear();
    evidence_.push_back("the contributions carry that factor already");
    return WithEvidence(found);
  }

  ParamJudgement Upstream(std::string sentence) {
    evidence_.insert(evidence_.begin(), std::move(sentence));
    judgement_.conclusions.push_back(
        {.outcome = Outcome::kWrong,
         .mechanism = Mechanism::kUpstream,
         .axis = geometry_.tensor > 1 ? std::optional<Axis>(geometry_.tensor_axis()) : std::nullopt,
         .coefficient = "none: a mixture",
         .evidence = evidence_});
    return std::move(judgement_);
  }

  // --- nothing to judge ------------------------------------------------------------------------

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

  ParamJudgement Unowned(std::string gap) {
    judgement_.conclusions.push_back({.outcome = Outcome::kWrong,
                                      .mechanism = Mechanism::kLostContribution,
                                      .coefficient = "none: per rank",
                                      .evidence = {std::move(gap)}});
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
                                      ? geometry_.data_axis
                                      : geometry_.tensor_axis(),
                          .coefficient = "none: per rank",
                          .evidence = {"copies of one weight end with different gradients; what "
                                       "went in is not in the files"}};
    judgement_.conclusions.push_back(std::move(conclusion));
    return std::move(judgement_);
  }

  // The probe's contributions are random numbers.
  void ForgetClasses() {
    measure_.over_tensor = Likeness::kUnknown;
    measure_.finalized_copies = measure_.finalized_tensor = Likeness::kUnknown;
    measure_.over_data.clear();
    measure_.rows = measure_.columns = LineCounts();
    Because("only a probe of the finalizer is in the files");
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

  void Because(std::string sentence) { judgement_.class_evidence.push_back(std::move(sentence)); }

  void TakeClasses() {
    ClassesLeft left = FindClasses({.geometry = &geometry_,
                                    .measure = &measure_,
                                    .hint = inputs_.hint,
                                    .first_step = inputs_.first_step,
                                    .replicated = inputs_.replicated});
    classes_ = std::move(left.classes);
    for (std::string& sentence : left.because) Because(std::move(sentence));
    judgement_.mixed_lines = left.mixed_lines;
    judgement_.weights_drifted = left.weights_drifted;
    geometry_.cut = judgement_.cut = left.cut;
    const bool replicated = geometry_.tensor > 1 && left.cut == CutKnown::kReplicated;
    const WeightFigures& after = measure_.weights_after;
    judgement_.parted_after = after.known && !(replicated ? after.equal : after.copies_equal);
    judgement_.replicas_part |= replicated && measure_.finalized_tensor == Likeness::kUnequal;
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
                                                    .geometry = &geometry_,
                                                    .measure = &measure_,
                                                    .options = options_}));
    return CheckMultiples();
  }

  // A multiple was found on a sample, and of elements that a rank owns: it must hold of all.
  absl::Status CheckMultiples() {
    const auto is_multiple = [](const Action& action) {
      return action.kind == Kind::kOwn || action.kind == Kind::kSum;
    };
    std::vector<Action> kept;
    std::string failed;
    for (Action& action : actions_) {
      if (is_multiple(action)) {
        MeasureOptions options = options_;
        options.kappa *= action.lambda;
        options.rtol = kWiden * action.bound * std::max(1.0, 1 / std::fabs(action.lambda));
        ParamGeometry geometry = geometry_;
        geometry.cut = CutKnown::kUnknown;  // sums of shards are asked for, too
        SUMONCE_ASSIGN_OR_RETURN(const Measure measure,
                                 MeasureParam(*inputs_.step, geometry, options));
        const Fit fit = action.kind == Kind::kSum ? Fit::kSum : Fit::kOwn;
        if (!measure.fits[static_cast<int>(fit)]) {
          failed = absl::StrCat(measure.mismatched, " of ", measure.elements * geometry_.count(),
                                " elements differ from what the others show was done: ",
                                ActionName(action, geometry_));
          continue;
        }
      }
      kept.push_back(std::move(action));
    }
    if (kept.empty()) kept.push_back({.kind = Kind::kUnexplained, .evidence = {failed}});
    actions_ = std::move(kept);
    return absl::OkStatus();
  }

  void NotReduced() {
    Action action{.kind = Kind::kNotReduced,
                  .axis = geometry_.data > 1 ? geometry_.data_axis : Axis::kPp};
    action.evidence.push_back(
        Fits(Fit::kRaw) ? "each rank ends with exactly what it contributed"
                        : "each rank ends with its own contribution, scaled and not summed");
    actions_.push_back(std::move(action));
  }

  // --- conclusions -----------------------------------------------------------------------------

  void Conclude() {
    const bool hinted = inputs_.hint && inputs_.hint->mixed_use;
    if (!judgement_.against && (judgement_.mixed_lines || hinted)) return MixedUse();
    for (const GradClass grad_class : classes_) {
      std::optional<Conclusion> best;
      for (const Action& action : actions_) {
        Conclusion conclusion = ConcludeOf(grad_class, action, geometry_);
        if (!best || conclusion.outcome == Outcome::kRight) best = std::move(conclusion);
        if (best->outcome == Outcome::kRight) break;
      }
      const bool right = best->outcome == Outcome::kRight;
      judgement_.by_difference_alone |=
          classes_.size() == 1 && grad_class == GradClass::kPartial && geometry_.tensor > 1 &&
          best->mechanism == Mechanism::kMissingSum && best->axis == geometry_.tensor_axis();
      judgement_.conclusions.push_back(*std::move(best));
      if (right && !judgement_.against) CompleteOverData(grad_class);
    }
  }

  void MixedUse() {
    Conclusion conclusion{.outcome = Outcome::kWrong,
                          .mechanism = Mechanism::kMixedUse,
                          .axis = geometry_.tensor_axis(),
                          .coefficient = "none: per rank",
                          .action = ActionName(actions_.front(), geometry_)};
    if (inputs_.hint && inputs_.hint->mixed_use)
      conclusion.evidence.push_back(inputs_.hint->source);
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

  const JudgeInputs& inputs_;
  ParamGeometry geometry_;  // with what is found out of its cut
  MeasureOptions options_;
  bool probed_ =
      false;  // c and f are the probe's: they tell what was done, and nothing of the class
  Measure measure_;
  ParamJudgement judgement_;
  std::vector<GradClass> classes_;
  std::vector<Action> actions_;
  Buffers buffers_;
  std::vector<std::string> evidence_;  // against a reference
};

}  // namespace

absl::StatusOr<ParamJudgement> JudgeParam(const JudgeInputs& inputs) {
  absl::StatusOr<ParamJudgement> judgement = ParamJudge(inputs).Run();
  if (!judgement.ok() || inputs.all_lines || !judgement->no_statement.empty()) return judgement;
  const bool right = std::all_of(
      judgement->conclusions.begin(), judgement->conclusions.end(),
      [](const Conclusion& conclusion) { return conclusion.outcome == Outcome::kRight; });
  if (right) judgement->per_rank = judgement->class_evidence = {};
  return judgement;
}

}  // namespace sumonce::capture

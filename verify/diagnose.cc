#include "verify/diagnose.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "comm/rank_list.h"
#include "sim/defects/effect.h"
#include "verify/judge.h"
#include "verify/rank_classes.h"
#include "verify/recover.h"
#include "verify/recover_state.h"
#include "verify/replay.h"

namespace sumonce {
namespace {

// Scaled by the largest entry, so that squares do not overflow.
double Norm(const Tensor& tensor) {
  const double largest = MaxAbs(tensor);
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double sum = 0;
  for (double value : tensor.values()) sum += (value / largest) * (value / largest);
  return largest * std::sqrt(sum);
}

bool Finite(const std::vector<Tensor>& ranks) {
  for (const Tensor& rank : ranks) {
    for (double value : rank.values()) {
      if (!std::isfinite(value)) return false;
    }
  }
  return true;
}

// A fit that is exactly what is right: the target's layouts, factor `scale`.
bool FitsTarget(const RecoveredState& recovered, const State& target, const Scale& scale) {
  return std::any_of(recovered.all.begin(), recovered.all.end(), [&](const State& state) {
    return state.scale == scale && state.axes == target.axes;
  });
}

class ParamDiagnosis {
 public:
  ParamDiagnosis(const DiagnoseInputs& inputs, const ComparedStep& step, const Param& param)
      : inputs_(inputs), step_(step), param_(param), target_(param.shards.Target(*inputs.mesh)) {
    for (const StepRecord* rank : step.ranks) {
      const ParamRecord& record = rank->params.at(param.name);
      records_.push_back(&record);
      contributions_.push_back(record.contribution);
      finalized_.push_back(record.finalized());
    }
    reference_ = &step.reference->params.at(param.name);
  }

  Verdict Run() {
    verdict_.param = param_.name;
    verdict_.step = step_.step;
    verdict_.shape = Shape();
    verdict_.rule = absl::StrJoin(Claimed(), ", ");
    if (!Finite(finalized_) || !Finite(contributions_)) return Wrong(Mechanism::kNotFinite);
    after_ = Recover(finalized_, reference_->finalized());
    if (after_.zero && MaxAbs(reference_->finalized()) == 0) {
      verdict_.outcome = Outcome::kNoEvidence;
      verdict_.evidence.push_back("every rank's gradient and the reference's are exactly zero");
      return verdict_;
    }
    if (FitsTarget(after_, target_, Scale())) {
      Margin(after_);
      return verdict_;
    }
    before_ = Recover(contributions_, reference_->contribution);
    verdict_.per_rank =
        PerRankLines(finalized_, reference_->finalized(), param_.shards, *inputs_.mesh);
    const std::vector<std::vector<int>> classes = ClassesOf(step_, param_.name);
    if (before_.found && classes.size() > 1) return JudgedByClass(classes);
    if (before_.found && after_.found) return Judged();
    if (before_.found) return FinalizerUnknown();
    return ContributionWrong();
  }

 private:
  RecoveredState Recover(const std::vector<Tensor>& ranks, const Tensor& reference) const {
    return RecoverState(param_.shards, *inputs_.mesh, ranks, reference, inputs_.tolerance);
  }

  std::string Shape() const {
    std::vector<int64_t> extents;
    for (const DimExtent& dim : records_[0]->contribution.dims()) extents.push_back(dim.extent());
    return absl::StrCat("[", absl::StrJoin(extents, ", "), "] ",
                        ToAbsl(Name(inputs_.main_grad_dtype)));
  }

  std::vector<std::string> Claimed() const {
    std::vector<std::string> rules;
    for (const std::string& rule : records_[lead_]->rules) {
      if (!rule.empty()) rules.push_back(rule);
    }
    return rules;
  }

  Verdict Wrong(Mechanism mechanism, std::string coefficient = "none: per rank") {
    verdict_.outcome = Outcome::kWrong;
    verdict_.mechanism = mechanism;
    verdict_.coefficient = std::move(coefficient);
    return verdict_;
  }

  void Margin(const RecoveredState& recovered) {
    verdict_.evidence.push_back(
        absl::StrFormat("greatest difference %.3g, allowed %.3g (%.0f roundings)",
                        recovered.diff_abs_max, recovered.allowed, inputs_.tolerance.height));
  }

  // The finalizer did different things on different ranks: each class of them as if all ranks had
  // done what it did. The first that is not right is the verdict.
  Verdict JudgedByClass(const std::vector<std::vector<int>>& classes) {
    const Verdict common = verdict_;
    Verdict first = common;
    std::vector<std::string> others;
    for (const std::vector<int>& ranks : classes) {
      verdict_ = common;
      lead_ = ranks[0];
      verdict_.rule = absl::StrJoin(Claimed(), ", ");
      finalized_ = FinalizedLike(*inputs_.mesh, step_, param_.name, ranks);
      after_ = Recover(finalized_, reference_->finalized());
      if (!FitsTarget(after_, target_, Scale())) after_.found ? Judged() : FinalizerUnknown();
      const bool taken = first.outcome == Outcome::kRight && verdict_.outcome != Outcome::kRight;
      if (taken) {
        first = verdict_;
        first.ranks = RanksInWords(ranks);
      }
      others.push_back(absl::StrCat("on ", RanksInWords(ranks), " (rules ", verdict_.rule, "): ",
                                    verdict_.outcome == Outcome::kRight
                                        ? "right"
                                        : absl::StrCat(ToAbsl(Name(verdict_.mechanism)),
                                                       ", coefficient ", verdict_.coefficient)));
    }
    first.evidence.push_back(
        absl::StrCat("the ranks' marks differ, and so does what the finalizer "
                     "does: ",
                     absl::StrJoin(others, "; ")));
    return first;
  }

  // Both sides are states: the table says what happened.
  Verdict Judged() {
    for (const State& state : before_.all) {
      if (state.axes == before_.state.axes && state.scale == inputs_.sound_scale)
        before_.state = state;
    }
    const Judgement judgement =
        Judge(target_, before_.state, LoggedAfter(), inputs_.sound_scale, *inputs_.mesh);
    verdict_.outcome = judgement.outcome;
    verdict_.mechanism = judgement.mechanism;
    verdict_.axis = judgement.axis;
    verdict_.coefficient = judgement.coefficient;
    verdict_.factor = judgement.factor;
    verdict_.grad_class = judgement.grad_class;
    verdict_.action = judgement.action;
    Sentence();
    Margin(after_);
    Ambiguities();
    if (const auto fault =
            FindReductionFault(*inputs_.mesh, step_, param_.name, inputs_.tolerance)) {
      verdict_.operation = fault->operation;
      verdict_.evidence.insert(verdict_.evidence.end(), fault->evidence.begin(),
                               fault->evidence.end());
    }
    return verdict_;
  }

  // Axes of equal sizes give equal factors: of the states that fit, the one that the communication
  // log predicts from what the ranks contributed, through the table of maps.
  State LoggedAfter() const {
    State predicted = before_.state;
    for (const ParamRecord::Reduction& reduction : records_[lead_]->log) {
      const Group group = inputs_.mesh->GroupOf(AxesOfGroup(reduction.group), reduction.group);
      if (!reduction.divided_by.empty()) {
        const Group divisor =
            inputs_.mesh->GroupOf(AxesOfGroup(reduction.divided_by), reduction.divided_by);
        predicted = Apply(Scale::SizeOfGroup(divisor, -1), predicted);
      }
      predicted = Apply({.map = reduction.map}, group, predicted, -1);
    }
    for (const State& state : after_.all) {
      if (!predicted.lost && state.scale == predicted.scale && SameLayouts(state, predicted))
        return state;
    }
    return after_.state;
  }

  bool SameLayouts(const State& a, const State& b) const {
    for (size_t axis = 0; axis < inputs_.mesh->atomic().size(); ++axis) {
      if (a[static_cast<int>(axis)].layout != b[static_cast<int>(axis)].layout) return false;
    }
    return true;
  }

  std::string TimesTheReference() const {
    const Scale& scale = after_.state.scale;
    return scale.IsOne() ? "the reference"
                         : absl::StrCat(scale.Describe(*inputs_.mesh), " times the reference");
  }

  void Sentence() {
    switch (verdict_.mechanism) {
      case Mechanism::kMissingSum:
      case Mechanism::kWrongGroup:
        verdict_.evidence.push_back(
            absl::StrCat("the ranks' values add up to ", TimesTheReference()));
        return;
      case Mechanism::kMixedShards:
        verdict_.evidence.push_back("each rank holds the sum of the ranks' different slices");
        return;
      default:
        verdict_.evidence.push_back(
            absl::StrCat("every rank holds ", verdict_.coefficient, " times the reference"));
    }
  }

  // What the finalizer's steps did along the axis, from the numbers of one group; several
  // templates: what would decide.
  void Ambiguities() {
    const Axis axis = verdict_.axis.value_or(Axis::kTp);
    const std::vector<int> ranks = inputs_.mesh->Ranks(inputs_.mesh->GroupOf(axis), 0);
    if (ranks.size() < 2) return;
    std::vector<std::span<const double>> before;
    std::vector<std::span<const double>> after;
    double magnitude = 0;
    for (int rank : ranks) {
      before.push_back(records_[rank]->contribution.values());
      after.push_back(finalized_[rank].values());
      magnitude += MaxAbs(contributions_[rank]) + MaxAbs(finalized_[rank]);
    }
    if (inputs_.mesh->world_size() != static_cast<int>(ranks.size()))
      return;  // other axes acted too
    const RecoveredAction action = RecoverAction(before, after, inputs_.tolerance.For(magnitude));
    if (action.fits.size() < 2) return;
    verdict_.evidence.push_back(absl::StrCat(
        "the numbers alone fit ", absl::StrJoin(action.fits, ", "), ": ", WhatWouldDecide(action)));
  }

  // Sound contributions, but what came out is no state of the reference: a call of the finalizer
  // went wrong, or what it did has no name.
  Verdict FinalizerUnknown() {
    if (CheckReductions()) return verdict_;
    for (Axis axis : {Axis::kTp, Axis::kDp}) {
      const std::vector<int> group = inputs_.mesh->Ranks(inputs_.mesh->GroupOf(axis), 0);
      if (group.size() < 2 || inputs_.mesh->world_size() != static_cast<int>(group.size()))
        continue;
      std::vector<std::span<const double>> before;
      std::vector<std::span<const double>> after;
      for (int rank : group) {
        before.push_back(records_[rank]->contribution.values());
        after.push_back(finalized_[rank].values());
      }
      const RecoveredAction action =
          RecoverAction(before, after, inputs_.tolerance.For(MaxAbs(reference_->contribution)));
      verdict_.axis = axis;
      verdict_.action = absl::StrJoin(action.fits, " or ");
      for (const std::string& fit : action.fits) {
        if (fit.ends_with(" lost")) {
          verdict_.evidence.push_back(
              absl::StrCat("the sum over ", ToAbsl(Name(axis)), " lacks one term: ", fit));
        }
      }
    }
    return Wrong(Mechanism::kLostContribution);
  }

  bool CheckReductions() {
    std::optional<ReductionFault> fault =
        FindReductionFault(*inputs_.mesh, step_, param_.name, inputs_.tolerance);
    if (!fault) return false;
    verdict_.axis = fault->axis;
    verdict_.operation = fault->operation;
    verdict_.evidence = std::move(fault->evidence);
    Wrong(fault->mechanism);
    return true;
  }

  // The buffer that went into the finalizer is already wrong: accumulation, this rank's backward,
  // or what arrived there.
  Verdict ContributionWrong() {
    if (CheckAccumulation()) return verdict_;
    if (CheckLocal()) return verdict_;
    if (CheckUses() || CheckRows()) return verdict_;
    verdict_.evidence.push_back(absl::StrFormat(
        "the contributions are no terms, copies or slices of the reference's gradient (largest "
        "entry %.3g, allowed %.3g)",
        MaxAbs(reference_->contribution), inputs_.tolerance.For(MaxAbs(reference_->contribution))));
    return Wrong(Mechanism::kUpstream, "");
  }

  // Are the microbatches' terms sound, and the buffer not their sum?
  bool CheckAccumulation() {
    std::vector<Tensor> sums;
    for (const ParamRecord* record : records_) {
      Tensor sum = record->terms[0].Clone();
      for (size_t u = 1; u < record->terms.size(); ++u) AddInto(sum, record->terms[u]);
      sums.push_back(sum);
    }
    const RecoveredState sound = Recover(sums, reference_->contribution);
    if (!sound.found) return false;
    for (size_t rank = 0; rank < records_.size(); ++rank) {
      Tensor excess = records_[rank]->contribution.Clone();
      Tensor negative = sums[rank].Clone();
      ScaleInto(negative, -1);
      AddInto(excess, negative);
      const double allowed =
          inputs_.tolerance.For(MaxAbs(sums[rank]) + MaxAbs(records_[rank]->contribution));
      if (MaxAbs(excess) <= allowed) continue;
      NameExcess(static_cast<int>(rank), excess, allowed);
      return true;
    }
    return false;
  }

  void NameExcess(int rank, const Tensor& excess, double allowed) {
    const std::vector<Tensor>& terms = records_[rank]->terms;
    for (size_t u = 0; u < terms.size(); ++u) {
      for (int sign : {-1, 1}) {
        Tensor term = terms[u].Clone();
        ScaleInto(term, sign);
        if (!Compare(excess, term, allowed).equal) continue;
        verdict_.evidence.push_back(
            absl::StrCat("on rank ", rank, " the term of microbatch ", u,
                         sign < 0 ? " is missing from the buffer" : " is in the buffer twice"));
        Wrong(Mechanism::kLostContribution);
        return;
      }
    }
    if (!step_.previous.empty()) {
      const Tensor& stale = step_.previous[rank]->params.at(param_.name).finalized();
      if (Compare(excess, stale, allowed).equal) {
        verdict_.evidence.push_back(absl::StrCat("on rank ", rank,
                                                 " the buffer still holds the gradient of step ",
                                                 step_.previous[rank]->step));
        Wrong(Mechanism::kStale);
        return;
      }
    }
    verdict_.evidence.push_back(
        absl::StrCat("on rank ", rank, " the buffer is not the sum of the microbatches' terms"));
    Wrong(Mechanism::kLostContribution);
  }

  // What backward computed against what was handed on: the same numbers elsewhere, or another
  // factor on some ranks.
  bool CheckLocal() {
    for (size_t rank = 0; rank < records_.size(); ++rank) {
      Tensor computed = Tensor(records_[rank]->contribution.dims());
      for (const auto& [name, use] : records_[rank]->uses) AddInto(computed, use);
      const Tensor& handed = records_[rank]->contribution;
      const double allowed = inputs_.tolerance.For(MaxAbs(computed) + MaxAbs(handed));
      if (Compare(computed, handed, allowed).equal) continue;
      std::vector<double> a(computed.values().begin(), computed.values().end());
      std::vector<double> b(handed.values().begin(), handed.values().end());
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      const bool permuted =
          Compare(Tensor(computed.dims(), a), Tensor(handed.dims(), b), allowed).equal;
      verdict_.evidence.push_back(absl::StrCat("rank ", rank,
                                               permuted
                                                   ? " has the right numbers at wrong places"
                                                   : "'s gradient is not what its backward gives"));
      Wrong(permuted ? Mechanism::kWrongShard : Mechanism::kLocalGradient);
      return true;
    }
    return false;
  }

  // Every use sound by itself, but in different states: no one action of the finalizer suits both.
  bool CheckUses() {
    std::vector<std::string> states;
    bool differ = false;
    State first;
    for (const auto& [name, reference] : reference_->uses) {
      std::vector<Tensor> ranks;
      for (const ParamRecord* record : records_) {
        const auto use = record->uses.find(name);
        ranks.push_back(use == record->uses.end() ? Tensor() : use->second);
        if (ranks.back().empty()) return false;
      }
      const RecoveredState recovered = Recover(ranks, reference);
      if (!recovered.found) return false;
      if (states.empty()) first = recovered.state;
      differ |= !(recovered.state.axes == first.axes);
      states.push_back(absl::StrCat(name, " ", Describe(recovered.state, *inputs_.mesh)));
    }
    if (!differ) return false;
    verdict_.axis = Axis::kTp;
    verdict_.evidence.push_back(absl::StrCat("its uses are sound one by one, in different states: ",
                                             absl::StrJoin(states, "; ")));
    Wrong(Mechanism::kMixedUse);
    return true;
  }

  Tensor Row(const Tensor& tensor, int64_t row) const {
    Dims dims = tensor.dims();
    dims[0] = Plain(dims[0].dim, 1);
    const double* begin = tensor.data() + row * Count(dims);
    return Tensor(dims, std::vector<double>(begin, begin + Count(dims)));
  }

  // Every row of a replicated weight sound by itself, but in different states: its output is used
  // by ways of different classes, as a shared projection's is.
  bool CheckRows() {
    const Dims& dims = param_.shards.whole();
    if (!param_.shards.cuts().empty() || dims.size() < 2 || !dims[0].plain()) return false;
    struct RowRun {
      int64_t first, last;
      State state;
    };
    std::vector<RowRun> runs;
    for (int64_t row = 0; row < dims[0].extent(); ++row) {
      std::vector<Tensor> ranks;
      for (const Tensor& contribution : contributions_) ranks.push_back(Row(contribution, row));
      Dims one = dims;
      one[0] = Plain(dims[0].dim, 1);
      const RecoveredState recovered =
          RecoverState(ShardMap(one, {}), *inputs_.mesh, ranks, Row(reference_->contribution, row),
                       inputs_.tolerance);
      if (!recovered.found) return false;
      if (!runs.empty() && runs.back().state.axes == recovered.state.axes) {
        runs.back().last = row;
      } else {
        runs.push_back({row, row, recovered.state});
      }
    }
    if (runs.size() < 2) return false;
    verdict_.axis = Axis::kTp;
    std::vector<std::string> texts;
    for (const RowRun& run : runs) {
      texts.push_back(absl::StrCat("rows ", run.first, " to ", run.last, " ",
                                   Describe(run.state, *inputs_.mesh)));
    }
    verdict_.evidence.push_back(absl::StrCat("its rows are sound one by one, in different states: ",
                                             absl::StrJoin(texts, "; ")));
    Wrong(Mechanism::kMixedUse);
    return true;
  }

  const DiagnoseInputs& inputs_;
  const ComparedStep& step_;
  const Param& param_;
  State target_;
  std::vector<const ParamRecord*> records_;
  const ParamRecord* reference_;
  std::vector<Tensor> contributions_;
  std::vector<Tensor> finalized_;
  RecoveredState before_;
  RecoveredState after_;
  Verdict verdict_;
  int lead_ = 0;  // the rank whose rules and log count
};

}  // namespace

Verdict DiagnoseParam(const DiagnoseInputs& inputs, const ComparedStep& step, const Param& param) {
  return ParamDiagnosis(inputs, step, param).Run();
}

std::vector<std::string> PerRankLines(const std::vector<Tensor>& ranks, const Tensor& reference,
                                      const ShardMap& shards, const Mesh& mesh) {
  std::vector<std::string> lines;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const double norm = Norm(shards.Slice(reference, mesh, static_cast<int>(rank)));
    const double own = Norm(ranks[rank]);
    if (own == 0) {
      lines.push_back(absl::StrCat("rank ", rank, ": exactly zero"));
    } else if (norm == 0) {
      lines.push_back(absl::StrFormat("rank %d: norm %.3g, the reference is zero", rank, own));
    } else {
      lines.push_back(absl::StrFormat("rank %d: %.4g of the reference's norm", rank, own / norm));
    }
  }
  return lines;
}

}  // namespace sumonce

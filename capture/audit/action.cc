#include "capture/audit/action.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/audit/combinations.h"
#include "capture/audit/foreign_terms.h"
#include "capture/audit/sample.h"
#include "verify/recover.h"

namespace sumonce::capture {
namespace {

using Kind = Action::Kind;
using Columns = std::vector<std::vector<double>>;
using Span = std::span<const double>;

// Compensated (Neumaier): a plain sum over a million terms would be off by more than the elements
// of a float64 gradient are.
double Dot(Span x, Span y) {
  double sum = 0, rest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double term = x[i] * y[i], next = sum + term;
    rest += std::fabs(sum) >= std::fabs(term) ? (sum - next) + term : (term - next) + sum;
    sum = next;
  }
  return sum + rest;
}

// f = y + e with |e| <= relative * magnitude moves the best
// multiple of y by no more than this.
double RoundingOf(Span y, Span magnitude, double relative, double square) {
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += std::fabs(y[i]) * magnitude[i];
  return relative * sum / square;
}

bool IsMultiple(Span x, Span y, Span magnitude, double lambda, double relative) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(std::fabs(x[i] - lambda * y[i]) <=
          relative * std::max(1.0, std::fabs(lambda)) * magnitude[i]))
      return false;
  }
  return true;
}

class ActionFinder {
 public:
  ActionFinder(const ActionInputs& inputs, const Sample& sample)
      : inputs_(inputs), sample_(sample), geometry_(*inputs.geometry) {}

  absl::StatusOr<std::vector<Action>> Find() {
    UniformMultiple(false);
    if (geometry_.tensor > 1) UniformMultiple(true);
    if (actions_.empty()) AlongData();
    if (actions_.empty()) AlongTensor();
    if (actions_.empty()) AlongCopies();
    if (actions_.empty()) PerRankMultiple(geometry_.tensor > 1);
    if (actions_.empty() && geometry_.tensor > 1) PerRankMultiple(false);
    if (actions_.empty()) Permuted();
    if (std::optional<Action> found;
        actions_.empty() && (found = FindCombination(inputs_, sample_)))
      actions_.push_back(*std::move(found));
    for (auto* find : {FindMicrobatches, FindEarlierStep, FindForeignTerms, FindSwappedTerm}) {
      if (!actions_.empty()) break;
      SUMONCE_ASSIGN_OR_RETURN(std::optional<Action> found, find(inputs_, sample_));
      if (found) actions_.push_back(*std::move(found));
    }
    if (actions_.empty()) Unexplained();
    return std::move(actions_);
  }

 private:
  int holders() const { return geometry_.count(); }
  int RankOf(int holder) const { return geometry_.holders[holder].rank; }
  Span Needed(int holder, bool of_sum) const {
    return of_sum ? Span(sample_.sum) : sample_.Own(holder);
  }
  Span MagnitudeOf(int holder, bool of_sum) const {
    return of_sum ? Span(sample_.sum_magnitude)
                  : Span(sample_.own_magnitude[sample_.tensor[holder]]);
  }

  // f = lambda * own or sum, with one lambda for all.
  void UniformMultiple(bool of_sum) {
    double product = 0, square = 0, rounding = 0;
    for (int h = 0; h < holders(); ++h) {
      product += Dot(sample_.finalized[h], Needed(h, of_sum));
      square += Dot(Needed(h, of_sum), Needed(h, of_sum));
    }
    if (square == 0) return;
    const double lambda = product / square;
    for (int h = 0; h < holders(); ++h) {
      rounding +=
          RoundingOf(Needed(h, of_sum), MagnitudeOf(h, of_sum), 2 * sample_.relative, square);
      if (!IsMultiple(sample_.finalized[h], Needed(h, of_sum), MagnitudeOf(h, of_sum), lambda,
                      2 * sample_.relative))
        return;
    }
    if (std::fabs(lambda) <= 2 * sample_.relative) {
      actions_.push_back({.kind = Kind::kPerRank,
                          .lambda = 0,
                          .of_sum = of_sum,
                          .zero_somewhere = true,
                          .evidence = {"the finalized gradient is zero on every rank, what went in "
                                       "is not"}});
      return;
    }
    actions_.push_back({.kind = of_sum ? Kind::kSum : Kind::kOwn,
                        .lambda = lambda,
                        .rounding = rounding,
                        .bound = 2 * sample_.relative,
                        .of_sum = of_sum});
  }

  // Contributions of the holders `of`, summed over the places that are not theirs to tell apart.
  void AddTemplates(const std::vector<std::vector<int>>& groups, const Columns& terms, Axis axis,
                    bool crosses_tensor) {
    std::optional<std::set<std::string>> common;
    for (const std::vector<int>& group : groups) {
      std::vector<Span> before, after;
      for (const int h : group) {
        before.push_back(terms[h]);
        after.push_back(sample_.finalized[h]);
      }
      const RecoveredAction action = RecoverAction(before, after, 2 * sample_.bound());
      std::set<std::string> fits(action.fits.begin(), action.fits.end());
      if (common) {
        std::set<std::string> both;
        std::set_intersection(common->begin(), common->end(), fits.begin(), fits.end(),
                              std::inserter(both, both.end()));
        fits = std::move(both);
      }
      common = std::move(fits);
    }
    if (!common) return;
    for (const std::string& fit : *common) AddTemplate(fit, groups.front(), axis, crosses_tensor);
  }

  void AddTemplate(const std::string& fit, const std::vector<int>& group, Axis axis,
                   bool crosses_tensor) {
    Action action{.axis = axis};
    action.crosses_tensor = crosses_tensor;
    if (fit == "none") {
      action.kind = Kind::kNotReduced;
      action.evidence.push_back(absl::StrCat("nothing was summed over ", ToAbsl(Name(axis)),
                                             ": each rank ends with what "
                                             "it had"));
    } else if (fit.starts_with("blocks of ") || fit.starts_with("strides of ")) {
      WrongGroup(fit, group, action);
    } else if (fit.ends_with(" lost") || fit.starts_with("copy of ") ||
               fit.starts_with("n times rank")) {
      action.kind = Kind::kLost;
      const size_t digit = fit.find_first_of("0123456789");
      const int index = std::stoi(fit.substr(digit));
      const int rank = RankOf(group[index]);
      action.evidence.push_back(
          fit.ends_with(" lost")
              ? absl::StrCat("the sum over ", ToAbsl(Name(axis)), " lacks the term of rank ", rank)
              : absl::StrCat("every rank holds the contribution of rank ", rank, " alone"));
    } else {
      return;  // a multiple: looked for already
    }
    actions_.push_back(std::move(action));
  }

  // Sums over a part of the ranks: a named group, or part of the axes.
  void WrongGroup(const std::string& fit, const std::vector<int>& group, Action& action) {
    const int part = std::stoi(fit.substr(fit.find_first_of("0123456789")));
    const int n = static_cast<int>(group.size());
    std::vector<int> ranks;
    for (int i = 0; i < n; ++i) {
      const bool with_first = fit.starts_with("blocks") ? i < part : i % part == 0;
      if (with_first) ranks.push_back(RankOf(group[i]));
    }
    const std::string name = GroupNamed(inputs_.step->Common(geometry_.first().rank), ranks);
    action.kind = Kind::kWrongGroup;
    action.evidence.push_back(absl::StrCat("summed over ranks ", RanksText(ranks),
                                           name.empty() ? "" : absl::StrCat(", the group ", name),
                                           " and the like, not over all ", n));
    const std::optional<Axis> axis = AxisNamed(name);
    // One of the data axes was left out: that sum is missing.
    const int fastest = geometry_.data_axes.empty() ? 1 : geometry_.data_axes[0];
    if (!geometry_.expert && fastest > 1 && fastest < geometry_.data) {
      if (fit == absl::StrCat("blocks of ", fastest)) return MissingAlong(1, action);
      if (fit == absl::StrCat("strides of ", fastest)) return MissingAlong(0, action);
    }
    if (axis) action.axis = axis;
  }

  void MissingAlong(size_t axis, Action& action) {
    action.kind = Kind::kNotReduced;
    action.axis = geometry_.data_axis_names[axis];
  }

  static std::optional<Axis> AxisNamed(const std::string& name) {
    for (int axis = 0; axis < kNumAxes; ++axis) {
      if (Name(static_cast<Axis>(axis)) == name) return static_cast<Axis>(axis);
    }
    return std::nullopt;
  }

  // The reduction over data, whether the tensor axis was summed or not.
  void AlongData() {
    if (geometry_.data == 1) return;
    std::vector<std::vector<int>> groups;
    for (int h = 0; h < holders(); h += geometry_.data) {
      groups.emplace_back();
      for (int d = 0; d < geometry_.data; ++d) groups.back().push_back(h + d);
    }
    for (const bool tensor : {false, true}) {
      if (!actions_.empty() || (tensor && geometry_.tensor == 1)) continue;
      const Columns terms = SummedOver(tensor);
      NotReducedMultiple(terms, tensor);
      if (actions_.empty()) AddTemplates(groups, terms, geometry_.data_axis, tensor);
    }
  }

  // f = lambda * the rank's own terms, with one lambda for all: nothing was summed over data.
  void NotReducedMultiple(const Columns& terms, bool tensor) {
    double product = 0, square = 0;
    for (int h = 0; h < holders(); ++h) {
      product += Dot(sample_.finalized[h], terms[h]);
      square += Dot(terms[h], terms[h]);
    }
    if (square == 0) return;
    const double lambda = product / square;
    for (int h = 0; h < holders(); ++h) {
      if (!IsMultiple(sample_.finalized[h], terms[h], sample_.sum_magnitude, lambda,
                      2 * sample_.relative))
        return;
    }
    Action action{.kind = Kind::kNotReduced, .lambda = lambda, .axis = geometry_.data_axis};
    action.crosses_tensor = tensor;
    action.evidence.push_back(absl::StrFormat(
        "nothing was summed over %s: each rank ends with %.4g times what it had%s",
        std::string(Name(geometry_.data_axis)), lambda,
        tensor ? absl::StrCat(", summed over ", ToAbsl(Name(geometry_.tensor_axis()))) : ""));
    actions_.push_back(std::move(action));
  }

  // By holder, the contributions summed over copies and, if asked, over the tensor axis: what the
  // reduction over data would sum.
  Columns SummedOver(bool tensor) const {
    Columns terms(holders(), std::vector<double>(sample_.count, 0.0));
    for (int h = 0; h < holders(); ++h) {
      for (int other = 0; other < holders(); ++other) {
        if (sample_.data[other] != sample_.data[h]) continue;
        if (!tensor && sample_.tensor[other] != sample_.tensor[h]) continue;
        for (int64_t i = 0; i < sample_.count; ++i) terms[h][i] += sample_.contribution[other][i];
      }
    }
    return terms;
  }

  void AlongTensor() {
    if (geometry_.tensor == 1) return;
    std::vector<std::vector<int>> groups;
    for (int copy = 0; copy < geometry_.copies; ++copy) {
      for (int d = 0; d < geometry_.data; ++d) {
        groups.emplace_back();
        for (int t = 0; t < geometry_.tensor; ++t)
          groups.back().push_back((copy * geometry_.tensor + t) * geometry_.data + d);
      }
    }
    Columns terms;
    for (int h = 0; h < holders(); ++h) terms.push_back(sample_.own[sample_.tensor[h]]);
    AddTemplates(groups, terms, geometry_.tensor_axis(), true);
  }

  // Tied copies on pipeline stages.
  void AlongCopies() {
    if (geometry_.copies == 1) return;
    std::vector<std::vector<int>> groups;
    const int apart = geometry_.tensor * geometry_.data;
    for (int h = 0; h < apart; ++h) {
      groups.emplace_back();
      for (int copy = 0; copy < geometry_.copies; ++copy) groups.back().push_back(h + copy * apart);
    }
    Columns terms(holders(), std::vector<double>(sample_.count, 0.0));
    for (int h = 0; h < holders(); ++h) {
      for (int d = 0; d < geometry_.data; ++d) {
        const int other = h - sample_.data[h] + d;
        for (int64_t i = 0; i < sample_.count; ++i) terms[h][i] += sample_.contribution[other][i];
      }
    }
    AddTemplates(groups, terms, Axis::kPp, false);
  }

  void PerRankMultiple(bool of_sum) {
    Action action{.kind = Kind::kPerRank, .of_sum = of_sum};
    std::vector<std::string> texts;
    for (int h = 0; h < holders(); ++h) {
      const Span needed = Needed(h, of_sum);
      const double square = Dot(needed, needed);
      if (square == 0) return;
      const double lambda = Dot(sample_.finalized[h], needed) / square;
      if (!IsMultiple(sample_.finalized[h], needed, MagnitudeOf(h, of_sum), lambda,
                      2 * sample_.relative))
        return;
      action.zero_somewhere |= std::fabs(lambda) <= 2 * sample_.relative;
      texts.push_back(absl::StrFormat("%.4g on rank %d", lambda, RankOf(h)));
    }
    action.evidence.push_back(
        absl::StrCat("the ranks hold ", absl::StrJoin(texts, ", "), " times the ",
                     of_sum ? "sum of all contributions" : "sum of their contributions over data"));
    actions_.push_back(std::move(action));
  }

  // Only where all elements are at hand.
  void Permuted() {
    if (!sample_.whole) return;
    for (const bool of_sum : {false, true}) {
      if (of_sum && geometry_.tensor == 1) continue;
      bool permuted = true;
      std::vector<int> where;
      for (int h = 0; h < holders() && permuted; ++h) {
        std::vector<double> a = sample_.finalized[h];
        const Span needed = Needed(h, of_sum);
        std::vector<double> b(needed.begin(), needed.end());
        bool same = true;
        for (size_t i = 0; i < a.size(); ++i) same &= std::fabs(a[i] - b[i]) <= 2 * sample_.bound();
        if (!same) where.push_back(RankOf(h));
        std::sort(a.begin(), a.end());
        std::sort(b.begin(), b.end());
        for (size_t i = 0; i < a.size(); ++i)
          permuted &= std::fabs(a[i] - b[i]) <= 2 * sample_.bound();
      }
      if (!permuted) continue;
      actions_.push_back({.kind = Kind::kPermuted,
                          .of_sum = of_sum,
                          .evidence = {absl::StrCat("the right numbers at wrong places on rank ",
                                                    RanksText(where))}});
      return;
    }
  }

  void Unexplained() {
    double worst = 0;
    for (int h = 0; h < holders(); ++h) {
      for (const bool of_sum : {false, true}) {
        const Span needed = Needed(h, of_sum);
        double error = 0;
        for (int64_t i = 0; i < sample_.count; ++i)
          error = std::max(error, std::fabs(sample_.finalized[h][i] - needed[i]));
        if (!of_sum || error < worst) worst = error;
      }
    }
    Action action{.kind = Kind::kUnexplained};
    action.evidence.push_back(absl::StrCat(
        "what came out is no combination of what the ranks put in; ", inputs_.measure->mismatched,
        " of ", inputs_.measure->elements * holders(), " elements differ"));
    if (worst < 0x1p-6 * sample_.magnitude) {
      action.evidence.push_back(absl::StrFormat(
          "yet it is within %.2g of the terms' size of a right one: if the job reduces in a "
          "narrower type than it stores, say --rtol %.1g",
          worst / sample_.magnitude, 2 * worst / sample_.magnitude));
    }
    actions_.push_back(std::move(action));
  }

  const ActionInputs& inputs_;
  const Sample& sample_;
  const ParamGeometry& geometry_;
  std::vector<Action> actions_;
};

}  // namespace

absl::StatusOr<std::vector<Action>> FindActions(const ActionInputs& inputs) {
  SUMONCE_ASSIGN_OR_RETURN(const Sample sample, TakeSample(*inputs.step, *inputs.geometry,
                                                           *inputs.measure, inputs.options));
  return ActionFinder(inputs, sample).Find();
}

std::string GroupNamed(const Manifest& manifest, const std::vector<int>& ranks) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  // The plain axes first: "dp" rather than "dp_cp" where both are the same ranks.
  for (const bool plain : {true, false}) {
    for (const auto& [name, lists] : manifest.groups) {
      if ((name.find('_') == name.npos) != plain) continue;
      for (std::vector<int> list : lists) {
        std::sort(list.begin(), list.end());
        if (list == sorted) return name;
      }
    }
  }
  return "";
}

}  // namespace sumonce::capture

#include "capture/audit/foreign_terms.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

constexpr int kMaxCandidates = 512;  // parameters of one rank that are tried

class ForeignTerms {
 public:
  ForeignTerms(const ActionInputs& inputs, const Sample& sample)
      : inputs_(inputs), step_(*inputs.step), geometry_(*inputs.geometry), sample_(sample) {}

  absl::StatusOr<std::optional<Action>> Find() {
    const int rank = geometry_.first().rank;
    const Manifest& common = step_.Common(rank);
    for (const char* group : {"dp_cp", "dp"}) {
      const std::vector<int> ranks = RanksOf(common, group, rank);
      std::vector<int> others;
      for (const int other : ranks) {
        if (!IsHolder(other) && step_.Has(other)) others.push_back(other);
      }
      if (others.empty()) continue;
      const std::string name = GroupNamed(common, ranks);
      axis_ = name == "cp" ? Axis::kCp : Axis::kDp;
      SUMONCE_ASSIGN_OR_RETURN(const bool explained, Explain(others));
      if (explained || Marked())
        return Result(name.empty() ? std::string(group) : name, others, explained);
    }
    return std::optional<Action>();
  }

 private:
  bool IsHolder(int rank) const {
    return std::any_of(geometry_.holders.begin(), geometry_.holders.end(),
                       [&](const Holder& holder) { return holder.rank == rank; });
  }

  static std::vector<int> RanksOf(const Manifest& common, const std::string& group, int rank) {
    const auto lists = common.groups.find(group);
    if (lists == common.groups.end()) return {};
    for (const std::vector<int>& list : lists->second) {
      if (std::find(list.begin(), list.end(), rank) != list.end()) return list;
    }
    return {};
  }

  // Subtracts from the first holder's gradient what it should be, then what some parameter of each
  // other rank contributed, as long as that leaves less.
  absl::StatusOr<bool> Explain(const std::vector<int>& others) {
    const Holder& holder = geometry_.first();
    const size_t h = &holder - geometry_.holders.data();
    std::vector<double> rest = sample_.finalized[h];
    std::vector<double> magnitude = sample_.own_magnitude[sample_.tensor[h]];
    for (int64_t i = 0; i < sample_.count; ++i) rest[i] -= sample_.own[sample_.tensor[h]][i];
    const int kind = step_.KindNumber("contribution");
    for (const int other : others) {
      SUMONCE_ASSIGN_OR_RETURN(const std::vector<int> candidates, Candidates(other, kind));
      double best = Square(rest);
      std::vector<double> taken;
      int which = -1;
      for (const int param : candidates) {
        ParamGeometry theirs = geometry_;
        theirs.holders.assign(geometry_.holders.size(), {});
        theirs.holders[h] = {.rank = other, .param = param};
        SUMONCE_ASSIGN_OR_RETURN(std::vector<std::vector<double>> values,
                                 SampleKind(step_, theirs, *inputs_.measure, "contribution"));
        if (values[h].empty()) continue;
        for (double& value : values[h]) value *= inputs_.options.kappa;
        double left = 0;
        for (int64_t i = 0; i < sample_.count; ++i)
          left += (rest[i] - values[h][i]) * (rest[i] - values[h][i]);
        if (left >= best) continue;
        best = left;
        taken = std::move(values[h]);
        which = param;
      }
      if (which < 0) continue;
      for (int64_t i = 0; i < sample_.count; ++i) {
        rest[i] -= taken[i];
        magnitude[i] += std::fabs(taken[i]);
      }
      found_.push_back(absl::StrCat(step_.params()[which], " of rank ", other));
    }
    for (int64_t i = 0; i < sample_.count; ++i) {
      if (!(std::fabs(rest[i]) <= 4 * sample_.relative * magnitude[i])) return false;
    }
    return !found_.empty();
  }

  static double Square(const std::vector<double>& x) {
    double square = 0;
    for (const double value : x) square += value * value;
    return square;
  }

  // Parameters of the same kind and shape.
  absl::StatusOr<std::vector<int>> Candidates(int rank, int kind) const {
    std::vector<int> candidates;
    const std::vector<std::string>& params = step_.params();
    for (int param = 0; param < static_cast<int>(params.size()); ++param) {
      if (static_cast<int>(candidates.size()) == kMaxCandidates) break;
      if (KindOf(params[param]) != geometry_.kind) continue;
      if (step_.ShapeOf(rank, param, kind) == inputs_.measure->shape) candidates.push_back(param);
    }
    return candidates;
  }

  // Whether the marks send the parameter into the dense buffer although ranks of that group hold
  // other parameters.
  bool Marked() const {
    const Holder& holder = geometry_.first();
    const Manifest& common = step_.Common(holder.rank);
    const auto param = common.params.find(step_.params()[holder.param]);
    if (param == common.params.end() || !geometry_.expert) return false;
    return FlagOf(param->second.marks, "allreduce").value_or(true);
  }

  std::optional<Action> Result(const std::string& group, const std::vector<int>& others,
                               bool explained) const {
    Action action{.kind = Action::Kind::kWrongGroup, .axis = axis_};
    action.evidence.push_back(absl::StrCat("reduced over ", group, ", but ranks ",
                                           RanksText(others), " of it do not hold this parameter"));
    for (const std::string& found : found_) {
      if (explained)
        action.evidence.push_back(absl::StrCat("the contribution of ", found, " is in it"));
    }
    if (Marked())
      action.evidence.push_back(
          "its mark allreduce is not false, so it is reduced with the dense parameters");
    return action;
  }

  const ActionInputs& inputs_;
  const Step& step_;
  const ParamGeometry& geometry_;
  const Sample& sample_;
  Axis axis_ = Axis::kDp;
  std::vector<std::string> found_;
};

// What must have stood in a holder's place: f without everybody else's terms, by that of the first
// holder. Its own term if nothing was swapped there.
std::vector<double> InPlaceOf(const Sample& sample, size_t holder, bool of_sum) {
  std::vector<double> rest = sample.finalized[holder];
  const std::span<const double> all =
      of_sum ? std::span<const double>(sample.sum) : sample.Own(static_cast<int>(holder));
  for (int64_t i = 0; i < sample.count; ++i) rest[i] -= all[i] - sample.contribution[holder][i];
  return rest;
}

class SwappedTerm {
 public:
  SwappedTerm(const ActionInputs& inputs, const Sample& sample)
      : step_(*inputs.step), geometry_(*inputs.geometry), inputs_(inputs), sample_(sample) {}

  absl::StatusOr<std::optional<Action>> Find() {
    for (const bool of_sum : {false, true}) {
      if (of_sum && geometry_.tensor == 1) continue;
      for (int h = 0; h < geometry_.count(); ++h) {
        SUMONCE_ASSIGN_OR_RETURN(std::optional<Action> found, InPlace(h, of_sum));
        if (found) return found;
      }
    }
    return std::optional<Action>();
  }

 private:
  absl::StatusOr<std::optional<Action>> InPlace(int h, bool of_sum) {
    const Holder& holder = geometry_.holders[h];
    const std::vector<double> expected = InPlaceOf(sample_, h, of_sum);
    const int kind = step_.KindNumber("contribution");
    int tried = 0;
    for (int param = 0; param < static_cast<int>(step_.params().size()); ++param) {
      const StoredTensor tensor = step_.Find(holder.rank, param, kind);
      if (!tensor.present() || tensor.count != inputs_.measure->elements) continue;
      if (param == holder.param || ++tried > kMaxCandidates) continue;
      ParamGeometry theirs = geometry_;
      theirs.holders.assign(geometry_.holders.size(), {});
      theirs.holders[h] = {.rank = holder.rank, .param = param};
      SUMONCE_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> values,
                               SampleKind(step_, theirs, *inputs_.measure, "contribution"));
      if (!Matches(expected, values[h])) continue;
      Action action{.kind = Action::Kind::kPermuted, .axis = geometry_.data_axis};
      action.evidence.push_back(absl::StrCat("in the place of rank ", holder.rank,
                                             "'s term is what it contributed to ",
                                             step_.params()[param]));
      return std::optional<Action>(std::move(action));
    }
    return std::optional<Action>();
  }

  bool Matches(const std::vector<double>& expected, const std::vector<double>& values) const {
    for (int64_t i = 0; i < sample_.count; ++i) {
      const double value = inputs_.options.kappa * values[i];
      const double allowed = 4 * sample_.relative * (sample_.sum_magnitude[i] + std::fabs(value));
      if (!(std::fabs(expected[i] - value) <= allowed)) return false;
    }
    return !values.empty();
  }

  const Step& step_;
  const ParamGeometry& geometry_;
  const ActionInputs& inputs_;
  const Sample& sample_;
};

}  // namespace

absl::StatusOr<std::optional<Action>> FindSwappedTerm(const ActionInputs& inputs,
                                                      const Sample& sample) {
  return SwappedTerm(inputs, sample).Find();
}

absl::StatusOr<std::optional<Action>> FindForeignTerms(const ActionInputs& inputs,
                                                       const Sample& sample) {
  return ForeignTerms(inputs, sample).Find();
}

}  // namespace sumonce::capture

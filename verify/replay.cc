#include "verify/replay.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "comm/rank_list.h"
#include "sim/finalize/finalizer.h"
#include "verify/recover.h"
#include "verify/sent_instead.h"

namespace sumonce {
namespace {

using Reduction = ParamRecord::Reduction;
using Vector = std::vector<double>;

double LargestOf(const Vector& values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// One reduction of one parameter, on all ranks of the world.
class ReductionReplay {
 public:
  ReductionReplay(const Mesh& mesh, const ComparedStep& step, const std::string& param,
                  size_t index, const Tolerance& tolerance)
      : mesh_(mesh), step_(step), param_(param) {
    const ParamRecord& first = step.ranks[0]->params.at(param);
    reduction_ = first.log[index];
    group_ = mesh.GroupOf(AxesOfGroup(reduction_.group), reduction_.group);
    for (const StepRecord* rank : step.ranks) {
      const ParamRecord& record = rank->params.at(param);
      inputs_.push_back(InputOf(record));
      const auto values = record.after[reduction_.step].values();
      results_.emplace_back(values.begin(), values.end());
    }
    double magnitude = 0;
    // Of what was put in alone: a wrong result may be of any size, and would excuse everything.
    for (const Vector& input : inputs_) magnitude += 2 * LargestOf(input);
    allowed_ = tolerance.For(magnitude);
  }

  std::optional<ReductionFault> Find() {
    const std::vector<std::vector<int>> wrong = GroupsThatGotSomethingElse(group_);
    if (wrong.empty()) return std::nullopt;
    fault_.operation = reduction_.operation;
    fault_.axis = AxesOfGroup(reduction_.group)[0];
    if (IsOfAnotherGroup()) return fault_;
    for (const std::vector<int>& members : wrong) Explain(members);
    return fault_;
  }

 private:
  // What a rank put into the sum: scaled as the reduction scales before it.
  Vector InputOf(const ParamRecord& record) const {
    const Tensor& before =
        reduction_.step == 0 ? record.contribution : record.after[reduction_.step - 1];
    Vector input(before.values().begin(), before.values().end());
    if (!reduction_.divided_by.empty()) {
      const std::string& divisor = reduction_.divided_by;
      const double factor = 1.0 / mesh_.size(mesh_.GroupOf(AxesOfGroup(divisor), divisor));
      for (double& value : input) value *= factor;
    }
    return input;
  }

  Vector SumOf(const std::vector<int>& ranks, int without = -1) const {
    Vector sum(inputs_[0].size(), 0.0);
    for (int rank : ranks) {
      if (rank == without) continue;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += inputs_[rank][i];
    }
    return sum;
  }

  // What every member gets, to the bit if sums are ordered: divided last, as the communicators do.
  Vector ExpectedOf(const std::vector<int>& members) const {
    Vector expected = SumOf(members);
    if (reduction_.map != Map::kAvg) return expected;
    for (double& value : expected) value /= static_cast<double>(members.size());
    return expected;
  }

  // What the ranks' terms add up to, from a result.
  Vector TotalOf(int rank, size_t ranks) const {
    Vector total = results_[rank];
    if (reduction_.map != Map::kAvg) return total;
    for (double& value : total) value *= static_cast<double>(ranks);
    return total;
  }

  bool Same(const Vector& a, const Vector& b) const {
    for (size_t i = 0; i < a.size(); ++i) {
      if (!(std::fabs(a[i] - b[i]) <= allowed_)) return false;
    }
    return true;
  }

  std::vector<std::vector<int>> GroupsThatGotSomethingElse(const Group& group) const {
    std::vector<std::vector<int>> wrong;
    for (int rank = 0; rank < mesh_.world_size(); ++rank) {
      const std::vector<int> members = mesh_.Ranks(group, rank);
      if (members[0] != rank) continue;
      const Vector expected = ExpectedOf(members);
      const bool right = std::all_of(members.begin(), members.end(),
                                     [&](int member) { return Same(results_[member], expected); });
      if (!right) wrong.push_back(members);
    }
    return wrong;
  }

  bool IsOfAnotherGroup() {
    for (const char* name : {"tp", "dp", "tp_dp"}) {
      const Group other = mesh_.GroupOf(AxesOfGroup(name), name);
      if (name == reduction_.group || mesh_.size(other) != mesh_.size(group_)) continue;
      if (!GroupsThatGotSomethingElse(other).empty()) continue;
      fault_.mechanism = Mechanism::kWrongGroup;
      fault_.evidence.push_back(absl::StrCat(Call(), " is to reduce over ", reduction_.group,
                                             ", and every rank got the reduction over ", name));
      return true;
    }
    return false;
  }

  // "finalizer data_parallel/data_parallel_sum, call 2 (step 2),"
  std::string Call() const {
    return absl::StrCat(reduction_.operation, ", call ", step_.step, " (step ", step_.step, "),");
  }

  void Explain(const std::vector<int>& members) {
    const std::string place =
        absl::StrCat(Call(), " over ", reduction_.group, " [", JoinRanks(members), "]: ");
    const bool alike = std::all_of(members.begin(), members.end(), [&](int member) {
      return Same(results_[member], results_[members[0]]);
    });
    if (!alike) return Add(Mechanism::kUpstream, absl::StrCat(place, WhoGotWhat(members)));
    std::map<Mechanism, std::vector<std::string>> found;
    for (int member : members) {
      if (const auto instead = ExplainMember(members, member))
        found[instead->mechanism].push_back(
            absl::StrCat("rank ", member, "'s term ", instead->what));
    }
    if (found.empty()) {
      CountTerms(members, place);
    } else {
      Add(found.begin()->first, absl::StrCat(place, absl::StrJoin(found.begin()->second, ", or ")));
    }
  }

  // The ranks did not get the same: "rank 1 got zeros, not the sum".
  std::string WhoGotWhat(const std::vector<int>& members) const {
    const Vector expected = ExpectedOf(members);
    const Vector zeros(expected.size(), 0.0);
    std::vector<std::string> odd;
    for (int member : members) {
      const Vector& result = results_[member];
      if (Same(result, expected)) continue;
      const char* what = Same(result, zeros)             ? "zeros"
                         : Same(result, inputs_[member]) ? "its own term"
                                                         : "something else";
      odd.push_back(absl::StrCat("rank ", member, " got ", what, ", not the sum"));
    }
    return absl::StrJoin(odd, "; ");
  }

  std::optional<SentInstead> ExplainMember(const std::vector<int>& members, int member) const {
    Vector sent = TotalOf(member, members.size());
    const Vector others = SumOf(members, member);
    for (size_t i = 0; i < sent.size(); ++i) sent[i] -= others[i];
    Vector earlier;
    if (!step_.previous.empty()) earlier = InputOf(step_.previous[member]->params.at(param_));
    const Vector buffer = BufferOf(member);
    return ExplainSent(sent, {.own = inputs_[member], .earlier = earlier, .neighbours = buffer},
                       allowed_);
  }

  // All that the rank put into the same call, parameter by parameter.
  Vector BufferOf(int rank) const {
    Vector buffer;
    for (const auto& [name, record] : step_.ranks[rank]->params) {
      const bool travels =
          std::any_of(record.log.begin(), record.log.end(), [&](const Reduction& other) {
            return other.operation == reduction_.operation && other.step == reduction_.step;
          });
      if (!travels) continue;
      const Vector input = InputOf(record);
      buffer.insert(buffer.end(), input.begin(), input.end());
    }
    return buffer;
  }

  // Several ranks at once: whole numbers of terms, where the numbers determine them.
  void CountTerms(const std::vector<int>& members, const std::string& place) {
    std::vector<std::span<const double>> before;
    std::vector<Vector> totals;
    for (int member : members) {
      before.push_back(inputs_[member]);
      totals.push_back(TotalOf(member, members.size()));
    }
    const std::vector<std::span<const double>> after(totals.begin(), totals.end());
    const RecoveredAction action = RecoverAction(before, after, allowed_);
    std::vector<std::string> odd;
    bool counted = action.inside_group && action.coefficients.size() >= members.size();
    for (size_t s = 0; s < members.size() && counted; ++s) {
      const double times = action.coefficients[s];
      counted = std::fabs(times - std::round(times)) <= 1e-6;
      if (counted && std::round(times) != 1)
        odd.push_back(
            absl::StrCat("rank ", members[s], "'s term is there ", std::lround(times), " times"));
    }
    if (counted && !odd.empty()) {
      Add(Mechanism::kLostContribution, absl::StrCat(place, absl::StrJoin(odd, ", ")));
    } else {
      Add(Mechanism::kUpstream,
          absl::StrCat(place,
                       "the result is not the sum of what the ranks put in, and no one "
                       "rank's term explains it"));
    }
  }

  void Add(Mechanism mechanism, std::string sentence) {
    if (fault_.evidence.empty()) fault_.mechanism = mechanism;
    fault_.evidence.push_back(std::move(sentence));
  }

  const Mesh& mesh_;
  const ComparedStep& step_;
  const std::string& param_;
  Reduction reduction_;
  Group group_;
  std::vector<Vector> inputs_;   // by world rank
  std::vector<Vector> results_;  // by world rank
  double allowed_ = 0;
  ReductionFault fault_;
};

// The ranks went through the same reductions: only then can they be replayed together.
bool SameLog(const ComparedStep& step, const std::string& param) {
  const std::vector<Reduction>& first = step.ranks[0]->params.at(param).log;
  return std::all_of(step.ranks.begin(), step.ranks.end(), [&](const StepRecord* rank) {
    const std::vector<Reduction>& log = rank->params.at(param).log;
    return std::equal(log.begin(), log.end(), first.begin(), first.end(),
                      [](const Reduction& a, const Reduction& b) {
                        return a.operation == b.operation && a.step == b.step && a.map == b.map &&
                               a.group == b.group && a.divided_by == b.divided_by;
                      });
  });
}

}  // namespace

std::optional<ReductionFault> FindReductionFault(const Mesh& mesh, const ComparedStep& step,
                                                 const std::string& param,
                                                 const Tolerance& tolerance) {
  if (!SameLog(step, param)) return std::nullopt;
  const std::vector<Reduction>& log = step.ranks[0]->params.at(param).log;
  for (size_t index = 0; index < log.size(); ++index) {
    ReductionReplay replay(mesh, step, param, index, tolerance);
    if (std::optional<ReductionFault> fault = replay.Find()) return fault;
  }
  return std::nullopt;
}

}  // namespace sumonce

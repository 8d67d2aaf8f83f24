#include "verify/localize.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "spmd/whole.h"

namespace sumonce {
namespace {

using Names = std::map<std::string, int>;

Names NamesOf(const Tape& tape) {
  Names names;
  for (size_t id = 0; id < tape.nodes().size(); ++id)
    names[tape.nodes()[id].name] = static_cast<int>(id);
  return names;
}

class Localizer {
 public:
  Localizer(std::span<const KeptTape> ranks, const KeptTape& reference, const ProofRun& clean,
            const Tolerance& tolerance)
      : ranks_(ranks), reference_(*reference.tape), clean_(clean), tolerance_(tolerance) {
    clean_names_ = NamesOf(*clean.tape);
    for (const KeptTape& rank : ranks) rank_names_.push_back(NamesOf(*rank.tape));
  }

  std::optional<Culprit> FirstWrongValue() const {
    for (size_t id = 0; id < reference_.nodes().size(); ++id) {
      const std::string& name = reference_.nodes()[id].name;
      const auto clean = clean_names_.find(name);
      if (clean == clean_names_.end()) continue;
      std::vector<Tensor> arrays;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const auto found = rank_names_[rank].find(name);
        arrays.push_back(
            found == rank_names_[rank].end() ? Tensor() : ranks_[rank].tape->value(found->second));
      }
      const std::string wrong = Differs(clean_.tape->value(clean->second), arrays,
                                        reference_.value(static_cast<int>(id)));
      if (!wrong.empty())
        return Culprit{name, Direction::kForward, absl::StrCat("its value ", wrong)};
    }
    return std::nullopt;
  }

  std::optional<Culprit> FirstWrongGradient() const {
    const auto& edges = reference_.edges();
    for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
      const std::string& operation = reference_.nodes()[edge->first.first].name;
      const std::string& operand = reference_.nodes()[edge->first.second].name;
      const auto clean_operation = clean_names_.find(operation);
      const auto clean_operand = clean_names_.find(operand);
      if (clean_operation == clean_names_.end() || clean_operand == clean_names_.end()) continue;
      const auto state =
          clean_.tape->edges().find({clean_operation->second, clean_operand->second});
      if (state == clean_.tape->edges().end()) continue;
      std::vector<Tensor> arrays;
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        arrays.push_back(Edge(rank, operation, operand));
      const std::string wrong = Differs(state->second, arrays, edge->second);
      if (!wrong.empty()) {
        return Culprit{operation, Direction::kBackward,
                       absl::StrCat("the gradient it sends to ", operand, " ", wrong)};
      }
    }
    return std::nullopt;
  }

 private:
  Tensor Edge(size_t rank, const std::string& operation, const std::string& operand) const {
    const auto from = rank_names_[rank].find(operation);
    const auto to = rank_names_[rank].find(operand);
    if (from == rank_names_[rank].end() || to == rank_names_[rank].end()) return {};
    const auto& edges = ranks_[rank].tape->edges();
    const auto found = edges.find({from->second, to->second});
    return found == edges.end() ? Tensor() : found->second;
  }

  // "" if the arrays denote the reference under the state, else how they differ.
  std::string Differs(const State& state, const std::vector<Tensor>& arrays,
                      const Tensor& reference) const {
    if (state.lost) return "";
    for (const AxisState& axis : state.axes) {
      if (axis.layout != Layout::kEqual && axis.layout != Layout::kShard &&
          axis.layout != Layout::kPartial)
        return "";
    }
    const Joined joined = Join(state, *clean_.mesh, arrays);
    if (joined.whole.count() != reference.count()) return "has another shape than the reference's";
    Tensor expected = reference.Clone();
    ScaleInto(expected, state.scale.Evaluate(*clean_.mesh));
    double magnitude = MaxAbs(expected);
    for (const Tensor& array : arrays) magnitude += MaxAbs(array);
    const double allowed = tolerance_.For(magnitude);
    const Comparison comparison = Compare(joined.whole, expected, allowed);
    if (comparison.equal && joined.spread <= allowed) return "";
    return absl::StrCat("is not the reference's as ", Describe(state, *clean_.mesh),
                        ": greatest difference ", std::max(comparison.diff_abs_max, joined.spread),
                        ", allowed ", allowed);
  }

  std::span<const KeptTape> ranks_;
  const NumericTape& reference_;
  const ProofRun& clean_;
  const Tolerance& tolerance_;
  Names clean_names_;
  std::vector<Names> rank_names_;
};

}  // namespace

std::optional<Culprit> Localize(std::span<const KeptTape> ranks, const KeptTape& reference,
                                const ProofRun& clean, const Tolerance& tolerance) {
  for (const KeptTape& rank : ranks) {
    if (!rank.tape) return std::nullopt;
  }
  if (!reference.tape) return std::nullopt;
  const Localizer localizer(ranks, reference, clean, tolerance);
  if (std::optional<Culprit> culprit = localizer.FirstWrongValue()) return culprit;
  return localizer.FirstWrongGradient();
}

}  // namespace sumonce

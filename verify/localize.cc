#include "verify/localize.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/rank_list.h"
#include "spmd/whole.h"
#include "verify/rounding_scale.h"
#include "verify/sent_instead.h"

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
      : ranks_(ranks),
        reference_(*reference.tape),
        clean_(clean),
        tolerance_(tolerance),
        scale_(*reference.tape, kSeed) {
    clean_names_ = NamesOf(*clean.tape);
    reference_names_ = NamesOf(reference_);
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
                                        reference_.value(static_cast<int>(id)), 0);
      if (!wrong.empty())
        return Culprit{name, Direction::kForward,
                       absl::StrCat("its value ", wrong, Senders(name, Direction::kForward))};
    }
    return std::nullopt;
  }

  // Edges, from the loss backward: the reference's, and those that only ranks have.
  std::optional<Culprit> FirstWrongGradient() const {
    const std::map<Edge, const Tensor*> edges = AllEdges();
    for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
      const std::string& operation = reference_.nodes()[edge->first.first].name;
      const std::string& operand = reference_.nodes()[edge->first.second].name;
      const std::string wrong =
          edge->second ? DiffersAt(edge->first, *edge->second) : OnlyOnRanks(operation, operand);
      if (!wrong.empty()) {
        return Culprit{operation, Direction::kBackward,
                       absl::StrCat("the gradient it sends to ", operand, " ", wrong,
                                    Senders(operation, Direction::kBackward))};
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr uint64_t kSeed = 1;  // of random signs: any will do
  using Edge = std::pair<int, int>;     // (operation, operand) of the reference

  // Null: an edge that the reference does not have.
  std::map<Edge, const Tensor*> AllEdges() const {
    std::map<Edge, const Tensor*> edges;
    for (const KeptTape& rank : ranks_) {
      for (const auto& [edge, gradient] : rank.tape->edges()) {
        const auto from = reference_names_.find(rank.tape->nodes()[edge.first].name);
        const auto to = reference_names_.find(rank.tape->nodes()[edge.second].name);
        if (from != reference_names_.end() && to != reference_names_.end())
          edges[{from->second, to->second}] = nullptr;
      }
    }
    for (const auto& [edge, gradient] : reference_.edges()) edges[edge] = &gradient;
    return edges;
  }

  // "" if what the ranks send denotes the reference's, or nothing can be said.
  std::string DiffersAt(const Edge& edge, const Tensor& reference) const {
    const std::string& operation = reference_.nodes()[edge.first].name;
    const std::string& operand = reference_.nodes()[edge.second].name;
    const auto clean_operation = clean_names_.find(operation);
    const auto clean_operand = clean_names_.find(operand);
    if (clean_operation == clean_names_.end() || clean_operand == clean_names_.end()) return "";
    const auto state = clean_.tape->edges().find({clean_operation->second, clean_operand->second});
    if (state == clean_.tape->edges().end()) return "";
    std::vector<Tensor> arrays;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      arrays.push_back(Sent(rank, operation, operand));
    return Differs(state->second, arrays, reference, scale_.Of(edge.first, edge.second));
  }

  // A gradient where a sound program sends none: it must vanish. Terms of one that vanishes once
  // they are added up may be anything; what the communication makes of them may not.
  std::string OnlyOnRanks(const std::string& operation, const std::string& operand) const {
    const auto clean = clean_names_.find(operand);
    if (clean != clean_names_.end() && clean_.tape->nodes()[clean->second].collective.vanishes)
      return "";
    const double allowed = tolerance_.For(scale_.largest());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Tensor sent = Sent(rank, operation, operand);
      if (sent.empty() || MaxAbs(sent) <= allowed) continue;
      return absl::StrCat("is none of the reference's, where no gradient flows: rank ", rank,
                          "'s has entries up to ", MaxAbs(sent), ", allowed ", allowed);
    }
    return "";
  }

  // What a rank put into a communication and got from it, in one direction.
  struct Passed {
    Tensor in;
    Tensor out;
  };
  Passed PassedAt(size_t rank, const std::string& name, Direction direction) const {
    const NumericTape& tape = *ranks_[rank].tape;
    const auto found = rank_names_[rank].find(name);
    if (found == rank_names_[rank].end()) return {};
    const Tape::Node& node = tape.nodes()[found->second];
    const int operand = node.operands[0];
    if (direction == Direction::kForward) return {tape.value(operand), tape.value(found->second)};
    return {tape.grad(found->second), Sent(rank, name, tape.nodes()[operand].name)};
  }

  // Of a communication: which rank sent something else than it had, group by group: "; over tp [0
  // 1]: rank 1's term is missing".
  std::string Senders(const std::string& name, Direction direction) const {
    const Tape::Node& node = clean_.tape->nodes()[clean_names_.at(name)];
    if (node.kind != Tape::Kind::kCollective) return "";
    const MapArgs& args =
        direction == Direction::kForward ? node.collective.forward : node.collective.backward;
    std::string text;
    for (int rank = 0; rank < clean_.mesh->world_size(); ++rank) {
      const std::vector<int> members = clean_.mesh->Ranks(node.collective.group, rank);
      if (members[0] != rank) continue;
      const std::string who = SendersIn(members, args, name, direction);
      if (who.empty()) continue;
      absl::StrAppend(&text, "; over ", node.collective.group.name, " [", JoinRanks(members),
                      "]: ", who);
    }
    return text;
  }

  std::string SendersIn(const std::vector<int>& members, const MapArgs& args,
                        const std::string& name, Direction direction) const {
    std::vector<std::vector<double>> in;
    std::vector<Tensor> out;
    double magnitude = 0;
    for (int member : members) {
      const Passed passed = PassedAt(member, name, direction);
      if (passed.in.empty() || passed.out.empty()) return "";
      in.emplace_back(passed.in.values().begin(), passed.in.values().end());
      out.push_back(passed.out);
      magnitude += MaxAbs(passed.in) + MaxAbs(passed.out);
    }
    const double allowed = tolerance_.For(magnitude);
    if (args.map == Map::kAllGather) return SendersOfSlices(members, in, out[0], args, allowed);
    if (args.map != Map::kSum && args.map != Map::kReduceScatter) return "";
    const Tensor total = args.map == Map::kSum ? out[0] : JoinUnits(out, args.dim);
    if (static_cast<size_t>(total.count()) != in[0].size()) return "";
    std::vector<double> sum(in[0].size(), 0.0);
    for (const std::vector<double>& term : in) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
    }
    if (Compare(Tensor(total.dims(), sum), total, allowed).equal) return "";
    return WhoSentWhat(members, in, total.values(), allowed);
  }

  static std::string SendersOfSlices(const std::vector<int>& members,
                                     const std::vector<std::vector<double>>& in,
                                     const Tensor& gathered, const MapArgs& args, double allowed) {
    const int n = static_cast<int>(members.size());
    for (int k = 0; k < n; ++k) {
      const Tensor slice = SliceUnits(gathered, args.dim, k, n);
      if (static_cast<size_t>(slice.count()) != in[k].size()) return "";
      if (Compare(slice, Tensor(slice.dims(), in[k]), allowed).equal) continue;
      const std::string who =
          WhoSentWhat(std::span(&members[k], 1), std::span(&in[k], 1), slice.values(), allowed);
      if (!who.empty()) return who;
    }
    return "";
  }

  // What a rank's operation sends back to its operand; empty: nothing.
  Tensor Sent(size_t rank, const std::string& operation, const std::string& operand) const {
    const auto from = rank_names_[rank].find(operation);
    const auto to = rank_names_[rank].find(operand);
    if (from == rank_names_[rank].end() || to == rank_names_[rank].end()) return {};
    const auto& edges = ranks_[rank].tape->edges();
    const auto found = edges.find({from->second, to->second});
    return found == edges.end() ? Tensor() : found->second;
  }

  // "" if the arrays denote the reference under the state, else how they differ. `terms`: how large
  // the terms were that made them, beyond their own size.
  std::string Differs(const State& state, const std::vector<Tensor>& arrays,
                      const Tensor& reference, double terms) const {
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
    double magnitude = terms + MaxAbs(expected);
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
  const RoundingScale scale_;
  Names clean_names_;
  Names reference_names_;
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

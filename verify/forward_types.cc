#include "verify/forward_types.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace sumonce {
namespace {

// The ends of a pair of maps where both are replicated or one is: what they are pinned to. Pairs
// that do not stand here are no communication of a typed program.
struct Pair {
  Map forward, backward;
  ForwardType from, to;
};
using T = ForwardType;
constexpr Pair kPairs[] = {
    {Map::kIdentity, Map::kSum, T::kI, T::kR},  // Copy
    {Map::kSum, Map::kIdentity, T::kP, T::kI},  // AllReduce to I
    {Map::kSum, Map::kSum, T::kP, T::kR},       // AllReduce to R
    {Map::kAllGather, Map::kReduceScatter, T::kV, T::kR},
    {Map::kAllGather, Map::kSplit, T::kV, T::kI},
    {Map::kReduceScatter, Map::kAllGather, T::kP, T::kV},
    {Map::kSplit, Map::kAllGather, T::kI, T::kV},
    {Map::kSplit, Map::kPad, T::kR, T::kV},  // Slice
    {Map::kAllToAll, Map::kAllToAll, T::kV, T::kV},
    {Map::kOwn, Map::kOwn, T::kR, T::kP},
};

// Values along one atomic axis; replicated ones are unknowns that are joined and pinned.
class AxisTyping {
 public:
  AxisTyping(const AbstractTape& tape, int axis)
      : tape_(tape), axis_(axis), root_(tape.nodes().size()), pin_(tape.nodes().size()) {
    std::iota(root_.begin(), root_.end(), 0);
  }

  void Infer(int loss, std::vector<std::string>& conflicts) {
    conflicts_ = &conflicts;
    for (size_t id = 0; id < tape_.nodes().size(); ++id) Visit(static_cast<int>(id));
    if (loss >= 0) Pin(loss, T::kI, loss);
  }

  ForwardType TypeOf(int id) const {
    const State& state = tape_.value(id);
    if (state.lost) return T::kUnknown;
    switch (state[axis_].layout) {
      case Layout::kShard:
        return T::kV;
      case Layout::kPartial:
        return T::kP;
      case Layout::kEqual:
        return pin_[Root(id)].value_or(T::kFree);
      default:
        return T::kUnknown;
    }
  }

 private:
  bool Equal(int id) const {
    return !tape_.value(id).lost && tape_.value(id)[axis_].layout == Layout::kEqual;
  }
  int Root(int id) const {
    while (root_[id] != id) id = root_[id];
    return id;
  }

  // Values that no gradient reaches take part in no typing.
  bool Typed(int id) const { return tape_.nodes()[id].needs_grad && Equal(id); }

  void Pin(int id, ForwardType type, int at) {
    if (!Typed(id)) return;
    std::optional<ForwardType>& pin = pin_[Root(id)];
    if (pin && *pin != type && *pin != T::kConflict) {
      pin = T::kConflict;
      conflicts_->push_back(tape_.nodes()[at].name);
    } else if (!pin) {
      pin = type;
    }
  }

  void Join(int a, int b, int at) {
    if (!Typed(a) || !Typed(b)) return;
    const int first = Root(a), second = Root(b);
    if (first == second) return;
    const std::optional<ForwardType> pin = pin_[second];
    root_[second] = first;
    if (pin) Pin(first, *pin, at);
  }

  void Visit(int id) {
    const Tape::Node& node = tape_.nodes()[id];
    if (!node.needs_grad) return;
    if (node.kind == Tape::Kind::kScale) return Join(id, node.operands[0], id);
    if (node.kind == Tape::Kind::kCollective) return VisitCollective(node, id);
    if (node.kind != Tape::Kind::kLocal || tape_.value(id).lost) return;
    for (const int operand : node.operands) {
      if (Equal(id)) {
        Join(id, operand, id);
      } else {
        // What meets a shard or a term is used by every rank for its own part; an addend of a
        // partial sum is the one value.
        const bool addend =
            node.declaration.addition && tape_.value(id)[axis_].layout == Layout::kPartial;
        Pin(operand, addend ? T::kI : T::kR, id);
      }
    }
  }

  void VisitCollective(const Tape::Node& node, int id) {
    const Collective& collective = node.collective;
    const std::vector<int>& axes = collective.group.atomic;
    const int operand = node.operands[0];
    const Map forward = collective.forward.map, backward = collective.backward.map;
    const bool along = std::find(axes.begin(), axes.end(), axis_) != axes.end();
    if (!along || (forward == Map::kIdentity && backward == Map::kIdentity))
      return Join(id, operand, id);
    const auto pair = std::find_if(std::begin(kPairs), std::end(kPairs), [&](const Pair& known) {
      return known.forward == forward && known.backward == backward;
    });
    if (pair == std::end(kPairs)) {
      if (backward != Map::kStop) conflicts_->push_back(node.name);
      return;
    }
    // A term of equal copies that is summed as it stands: R, whose terms happen to be equal.
    Pin(operand, pair->from == T::kP ? T::kR : pair->from, id);
    Pin(id, pair->to, id);
  }

  const AbstractTape& tape_;
  int axis_;
  std::vector<int> root_;
  std::vector<std::optional<ForwardType>> pin_;  // by root
  std::vector<std::string>* conflicts_ = nullptr;
};

}  // namespace

std::string_view Name(ForwardType type) {
  constexpr std::string_view kNames[] = {"free", "R", "I", "V", "P", "R and I", "unknown"};
  return kNames[static_cast<size_t>(type)];
}

ForwardType ForwardTypes::OfParam(const AbstractTape& tape, const Param& param,
                                  int atomic_axis) const {
  ForwardType joined = T::kFree;
  for (const auto& [place, type] : uses) {
    if (place.second != atomic_axis || tape.nodes()[place.first].param != &param) continue;
    if (type == T::kFree || type == joined) continue;
    if (joined != T::kFree) return T::kConflict;
    joined = type;
  }
  return joined;
}

ForwardTypes InferForward(const AbstractTape& tape, int loss) {
  ForwardTypes types;
  for (size_t axis = 0; axis < tape.mesh().atomic().size(); ++axis) {
    AxisTyping typing(tape, static_cast<int>(axis));
    typing.Infer(loss, types.conflicts);
    for (size_t id = 0; id < tape.nodes().size(); ++id) {
      if (tape.nodes()[id].kind == Tape::Kind::kUse)
        types.uses[{static_cast<int>(id), static_cast<int>(axis)}] =
            typing.TypeOf(static_cast<int>(id));
    }
  }
  return types;
}

}  // namespace sumonce

// The rule of local operations on traced values: spmd's, after constants have found the layout that
// fits them, and with the order of the cut entries kept.
#include <algorithm>

#include "base/status.h"
#include "spmd/local_rules.h"
#include "spmd/map.h"
#include "trace/declaration.h"

namespace sumonce::trace {
namespace {

struct Bound {
  const Operand* operand;
  Value value;
  Dims dims;
  const Extents* shape;
  const Extents* twice;
  bool linear;
};

bool Contains(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

int LabelOfCut(const Bound& bound) { return bound.operand->labels[bound.value.cut.dim]; }

// The label along which some operand is cut, or kUnnamed; a fault if it has none or they disagree.
int CutLabel(const std::vector<Bound>& operands, const Bound*& shard) {
  for (const Bound& bound : operands) {
    if (!bound.value.is(Layout::kShard)) continue;
    shard = &bound;
    return LabelOfCut(bound);
  }
  return kUnnamed;
}

bool ExtentsChange(const Bound& bound, DimSet labels) {
  for (size_t d = 0; d < bound.shape->size(); ++d) {
    const int label = bound.operand->labels[d];
    const bool asked = label != kUnnamed && Contains(labels, DimAt(label));
    if (asked && (*bound.shape)[d] != (*bound.twice)[d]) return true;
  }
  return false;
}

// A constant fits any layout: it is a shard where the others are, else equal. In a sum that is not
// zero, its extent has to be the same at both sizes.
void SettleConstant(Bound& bound, const Bound* shard, int cut_label) {
  const Scale scale = bound.value.state.scale;
  if (shard != nullptr && Contains(bound.operand->labels, cut_label)) {
    Cut cut = shard->value.cut;
    const auto& labels = bound.operand->labels;
    cut.dim = static_cast<int>(std::find(labels.begin(), labels.end(), cut_label) - labels.begin());
    bound.value = ShardValue(cut, shard->value.strip, scale);
    bound.value.alike = true;
  } else {
    bound.value = StateValue(StateOfConstant(bound.value));
  }
}

// Of constants alone: a constant again, unless the result's entries depend on their place. A sum
// over what is a rank's part of a dimension is the rank's share of the whole's, and the same on
// each.
Value OfConstants(const Call& call, const LocalRule& rule, const std::vector<Bound>& operands,
                  const State& state) {
  Value value = UniformValue(std::nullopt);
  value.state.scale = state.scale;
  DimSet counted = 0;
  for (const Bound& bound : operands) {
    for (size_t d = 0; d < bound.shape->size(); ++d) {
      const int label = bound.operand->labels[d];
      const bool summed = label != kUnnamed && Contains(rule.sums, DimAt(label));
      if (!summed || (*bound.shape)[d] == (*bound.twice)[d]) continue;
      if ((*bound.shape)[d] != 2 * (*bound.twice)[d]) return call.Lose(kExtents);
      if (Contains(counted, DimAt(label))) continue;
      counted |= SetOf(DimAt(label));
      value.state.scale = value.state.scale * Scale::SizeOfAxis(kAxis, -1);
    }
  }
  return value;
}

// Whether the entries of a result depend on their place, even where all operands are constants: as
// of what is mixed, and along a dimension that no operand has, whose entries the indices name.
bool DependsOnPlace(const LocalRule& rule, const std::vector<Bound>& operands) {
  bool placed = rule.mixes != 0;
  for (const int label : rule.result) {
    bool known = label == kUnnamed;
    for (const Bound& bound : operands) known |= Contains(bound.operand->labels, label);
    placed |= !known;
  }
  return placed;
}

// A constant of the extents that a rank has of a dimension is a shard like any other.
bool ShardOfConstant(const Call& call, Bound& bound) {
  int dim = -1;
  for (size_t d = 0; d < bound.shape->size(); ++d) {
    if ((*bound.shape)[d] == (*bound.twice)[d]) continue;
    const bool halves = (*bound.shape)[d] == 2 * (*bound.twice)[d];
    if (dim >= 0 || !halves || bound.operand->labels[d] == kUnnamed) return false;
    dim = static_cast<int>(d);
  }
  if (bound.value.kind != Kind::kUniform || dim < 0) return false;
  bound.value = ShardValue({.dim = dim, .outer = 1, .block = (*bound.shape)[dim]},
                           call.sections().NewStrip(), bound.value.state.scale);
  bound.value.alike = true;
  return true;
}

// Binds the operands; a fault that one brings, or that its kind is.
Value Bind(const Call& call, const LocalRule& rule, std::vector<Bound>& operands) {
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    const Operand& operand = rule.operands[i];
    const bool part = operand.part != nullptr;
    Bound bound{.operand = &operand,
                .value = part ? *operand.part : call.value(operand.position),
                .dims = {},
                .shape = part ? &call.out_shape(0) : &call.shape(operand.position),
                .twice = part ? &call.out_shape(0) : &call.shape_twice(operand.position),
                .linear = rule.addition || ((rule.linear >> i) & 1u) != 0};
    if (bound.value.lost()) return bound.value;
    if (const char* reason = Unusable(bound.value)) return call.Lose(reason);
    if (operand.labels.size() != bound.shape->size()) return call.Lose(kFormUndeclared);
    if (bound.value.is(Layout::kShard) && operand.labels[bound.value.cut.dim] == kUnnamed)
      return call.Lose(kNoSingleDim);
    operands.push_back(std::move(bound));
  }
  return {};
}

// The states as spmd knows them, with labels for dimensions.
State Labelled(const Bound& bound) {
  State state = bound.value.state;
  if (state[kAxis].layout == Layout::kShard) state[kAxis] = Shard(DimAt(LabelOfCut(bound)));
  return state;
}

Dims LabelledDims(const Bound& bound) {
  Dims dims;
  for (size_t d = 0; d < bound.shape->size(); ++d) {
    if (bound.operand->labels[d] != kUnnamed)
      dims.push_back(Plain(DimAt(bound.operand->labels[d]), (*bound.shape)[d]));
  }
  return dims;
}

const char* AlignShards(const Call& call, const std::vector<Bound>& operands, const Bound& shard) {
  for (const Bound& bound : operands) {
    if (!bound.value.is(Layout::kShard) || &bound == &shard) continue;
    if (bound.value.cut.outer != shard.value.cut.outer ||
        bound.value.cut.block != shard.value.cut.block)
      return "shards of unlike blocks meet";
    if (!call.sections().Align(bound.value.strip, shard.value.strip)) return kCutAndJoined;
  }
  return nullptr;
}

// Two uses of one value that need different actions, seen from where their gradients are added.
const char* ReasonOf(const Call& call, const LocalRule& rule, const std::vector<State>& states,
                     const State& result) {
  bool partial = false, equal = false;
  for (const State& state : states) {
    partial |= state[kAxis].layout == Layout::kPartial;
    equal |= state[kAxis].layout == Layout::kEqual;
  }
  const bool uses = rule.addition && call.operation().phase != Phase::kForward;
  return uses && partial && equal ? kMixedUse : result.off.reason;
}

Value Result(const Call& call, const LocalRule& rule, const State& state, const Bound* shard) {
  Value value = StateValue(state);
  if (state[kAxis].layout != Layout::kShard) return value;
  const int label = PositionOf(state[kAxis].dim);
  const auto at = std::find(rule.result.begin(), rule.result.end(), label);
  if (shard == nullptr || at == rule.result.end())
    return call.Lose("the sharded dimension is not in the result");
  value.cut = shard->value.cut;
  value.cut.dim = static_cast<int>(at - rule.result.begin());
  value.strip = shard->value.strip;
  value.state[kAxis] = Shard(DimAt(value.cut.dim));
  return value;
}

// Whether each shard among them has the same slice on every rank.
bool AllAlike(const std::vector<Bound>& operands) {
  return std::all_of(operands.begin(), operands.end(), [](const Bound& bound) {
    return !bound.value.is(Layout::kShard) || bound.value.alike;
  });
}

}  // namespace

Value Evaluate(const Call& call, const LocalRule& rule) {
  if (rule.refused != nullptr) return call.Lose(rule.refused);
  std::vector<Bound> operands;
  operands.reserve(rule.operands.size());
  if (Value fault = Bind(call, rule, operands); fault.lost()) return fault;
  // Zero times anything, and a sum with zero.
  for (const Bound& bound : operands) {
    if (bound.linear && !rule.addition && bound.value.is_zero()) return UniformValue(0.0);
  }
  if (rule.addition && operands.size() > 1)
    std::erase_if(operands, [&](const Bound& bound) { return bound.value.is_zero(); });
  if (operands.empty()) return UniformValue(0.0);
  const bool all_constant = !DependsOnPlace(rule, operands) &&
                            std::all_of(operands.begin(), operands.end(), [](const Bound& bound) {
                              return bound.value.kind == Kind::kUniform;
                            });
  const Bound* shard = nullptr;
  int cut_label = CutLabel(operands, shard);
  for (Bound& bound : operands) {
    if (shard == nullptr && !all_constant && ShardOfConstant(call, bound))
      cut_label = CutLabel(operands, shard);
  }
  // A mixture of slices passes only what scales it.
  const bool scales = operands.size() == 1 && operands[0].linear && !rule.addition &&
                      (rule.sums | rule.mixes | rule.maxima) == 0;
  if (scales && operands[0].value.is(Layout::kMixed))
    return StateValue(Apply(rule.factor, operands[0].value.state));
  std::vector<State> states;
  states.reserve(operands.size());
  Declaration declaration{.result = {},
                          .linear = 0,
                          .sums = rule.sums,
                          .mixes = rule.mixes,
                          .maxima = rule.maxima,
                          .addition = rule.addition};
  for (size_t i = 0; i < operands.size(); ++i) {
    Bound& bound = operands[i];
    if (bound.value.kind == Kind::kUniform) {
      SettleConstant(bound, shard, cut_label);
      const bool equal = bound.value.is(Layout::kEqual);
      // Of constants alone, sums are counted below, and the maximum is the constant.
      const DimSet combined = all_constant ? rule.mixes : rule.sums | rule.mixes | rule.maxima;
      if (equal && ExtentsChange(bound, combined)) return call.Lose(kExtents);
    }
    if (bound.linear) declaration.linear |= 1u << i;
    bound.dims = LabelledDims(bound);
    states.push_back(Labelled(bound));
    // An addend that is repeated along the cut dimension is its own shard.
    const bool repeated = rule.addition && cut_label != kUnnamed &&
                          bound.value.is(Layout::kEqual) &&
                          !Contains(bound.operand->labels, cut_label);
    if (repeated) states.back()[kAxis] = Shard(DimAt(cut_label));
  }
  std::vector<OperandState> views;
  for (size_t i = 0; i < operands.size(); ++i)
    views.push_back({.dims = &operands[i].dims, .value = &states[i]});
  State state = LocalForward(declaration, views, 1, call.op());
  if (state.off && !state.lost) state.lost = {ReasonOf(call, rule, states, state), call.op()};
  if (state.lost) return StateValue(state);
  if (shard != nullptr) {
    if (const char* reason = AlignShards(call, operands, *shard)) return call.Lose(reason);
  }
  state.scale = state.scale * rule.factor;
  if (all_constant) return OfConstants(call, rule, operands, state);
  Value result = Result(call, rule, state, shard);
  result.alike = result.is(Layout::kShard) && AllAlike(operands);
  return result;
}

}  // namespace sumonce::trace

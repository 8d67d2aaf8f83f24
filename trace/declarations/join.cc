// Tensors put together from parts, and the transposes of taking a part.
#include "base/status.h"
#include "spmd/map.h"
#include "trace/declaration.h"
#include "trace/declarations/labels.h"

namespace sumonce::trace {
namespace {

// The slices of all ranks, in their order and along the dimension that they are slices of.
std::optional<Value> JoinedSlices(const Call& call, const std::vector<Value>& parts, int dim,
                                  size_t count_twice) {
  if (parts.empty() || parts[0].kind != Kind::kRankSlice) return std::nullopt;
  const Value& first = parts[0];
  bool whole = static_cast<int>(parts.size()) == call.size() && count_twice == 2 * parts.size() &&
               first.cut.dim == dim;
  for (size_t k = 0; k < parts.size(); ++k) {
    whole &= parts[k].kind == Kind::kRankSlice && parts[k].index == static_cast<int>(k) &&
             parts[k].gather == first.gather;
  }
  if (!whole) return call.Lose("the ranks' slices are joined in another order or dimension");
  if (!call.sections().Join(first.strip)) return call.Lose(kCutAndJoined);
  State state = first.state;
  state[kAxis] = Equal();
  return StateValue(state);
}

// Like parts of a dimension that is no part's cut; or shards along it, one section each.
std::optional<Value> LikeParts(const Call& call, const std::vector<Value>& parts, int dim) {
  std::vector<Strip> strips;
  std::vector<int64_t> lengths;
  for (const Value& part : parts) {
    const bool along = part.is(Layout::kShard) && part.cut.dim == dim;
    if (!along) continue;
    strips.push_back(part.strip);
    lengths.push_back(part.cut.block);
  }
  const Value* core = nullptr;
  for (const Value& part : parts) {
    if (!part.is_zero() && core == nullptr) core = &part;
  }
  if (core == nullptr) return UniformValue(0.0);
  if (!strips.empty()) {
    int64_t block = 0;
    for (const Value& part : parts) {
      const bool like = part.is(Layout::kShard) && part.cut.dim == dim && part.cut.outer == 1 &&
                        part.state.scale == core->state.scale;
      if (!like) return std::nullopt;
      block += part.cut.block;
    }
    Value joined = ShardValue({.dim = dim, .outer = 1, .block = block},
                              call.sections().Concatenate(strips, lengths), core->state.scale);
    if (joined.strip.empty()) return call.Lose("more sections than are followed");
    return joined;
  }
  const bool constant = std::all_of(parts.begin(), parts.end(), [&](const Value& part) {
    return part.kind == Kind::kUniform && part.number && part.number == core->number;
  });
  if (constant) return *core;
  if (!core->is_state()) return std::nullopt;
  for (const Value& part : parts) {
    if (part.is_zero()) continue;
    if (!SameState(*core, part)) return std::nullopt;
    if (core->is(Layout::kShard) && !call.sections().Align(core->strip, part.strip))
      return call.Lose(kCutAndJoined);
  }
  Value joined = *core;
  joined.alike &= std::all_of(parts.begin(), parts.end(),
                              [](const Value& part) { return part.is_zero() || part.alike; });
  return joined;
}

// Each part keeps its own state: it is written to its place.
void WriteParts(const Call& call, const std::vector<TensorRef>& refs,
                const std::vector<Value>& parts, int dim) {
  const Memory::Place out = call.memory().PlaceOf(call.traces().Out(call.op(), 0));
  int64_t begin = 0, begin_twice = 0;
  for (size_t k = 0; k < refs.size(); ++k) {
    const Memory::Place part = call.memory().PlaceOf(refs[k]);
    Memory::Place place = out;
    place.at.offset += begin * out.at.strides[dim];
    place.twice.offset += begin_twice * out.twice.strides[dim];
    place.at.shape[dim] = part.at.shape[dim];
    place.twice.shape[dim] = part.twice.shape[dim];
    begin += part.at.shape[dim];
    begin_twice += part.twice.shape[dim];
    call.memory().WriteAt(place, parts[k]);
  }
}

std::vector<Value> Cat(const Call& call) {
  std::vector<TensorRef> refs;
  std::vector<Value> parts;
  for (const TensorRef& ref : call.traces().List(call.op(), 0)) {
    if (ref.id < 0) return {call.Lose(kFormUndeclared)};
    if (Count(call.traces().GeometryOf(ref)) == 0) continue;  // the legacy empty tensor too
    refs.push_back(ref);
    parts.push_back(call.memory().Read(ref));
  }
  const int rank = static_cast<int>(call.out_shape(0).size());
  const int dim = call.dimension(1, 0, rank);
  if (dim < 0 || refs.empty()) return {call.Lose(kFormUndeclared)};
  for (size_t k = 0; k < refs.size(); ++k) {
    const bool flat = rank == 1 && call.operation().phase == Phase::kFinalizer;
    if (parts[k].lost() && !flat) return {parts[k]};
    if (parts[k].kind == Kind::kUninitialised) return {call.Lose(kUninitialised)};
    if (static_cast<int>(call.traces().GeometryOf(refs[k]).shape.size()) != rank)
      return {call.Lose(kFormUndeclared)};
  }
  const size_t count_twice = call.traces().twice().ops[call.op()].args[0].items.size();
  if (const auto whole = JoinedSlices(call, parts, dim, count_twice)) return {*whole};
  if (count_twice != call.operation().args[0].items.size()) return {call.Lose(kOtherPlace)};
  // A flat buffer of gradients is a list of pieces, each with its own state, whatever they are.
  const bool buffer = rank == 1 && call.operation().phase == Phase::kFinalizer;
  if (!buffer) {
    if (const auto like = LikeParts(call, parts, dim)) return {*like};
  }
  WriteParts(call, refs, parts, dim);
  return {};
}

// Constants beside a whole value or a shard are it too; beside each other, whole values, unless
// they are one number. Parts of a stack have the same extents.
void JoinConstants(std::vector<Value>& parts) {
  const Value* core = nullptr;
  for (const Value& part : parts) {
    if (part.is_state() && core == nullptr) core = &part;
  }
  Value like = core != nullptr ? *core : parts[0];
  if (core == nullptr) {
    const auto same = [&](const Value& part) {
      return part.number && part.number == parts[0].number;
    };
    if (std::all_of(parts.begin(), parts.end(), same)) return;
  }
  like.alike = false;
  if (core != nullptr && !like.is(Layout::kEqual) && !like.is(Layout::kShard)) return;
  for (Value& part : parts) {
    if (part.kind != Kind::kUniform || part.is_zero()) continue;
    if (core == nullptr) {
      part = StateValue(StateOfConstant(part));
    } else if (part.state.scale == like.state.scale) {
      part = like;
    }
  }
}

// stack(tensors, dim): a new dimension that nothing cuts.
std::vector<Value> Stack(const Call& call) {
  std::vector<Value> parts;
  for (const TensorRef& ref : call.traces().List(call.op(), 0)) {
    if (ref.id < 0) return {call.Lose(kFormUndeclared)};
    parts.push_back(call.memory().Read(ref));
    if (parts.back().lost()) return {parts.back()};
    if (const char* reason = Unusable(parts.back())) return {call.Lose(reason)};
  }
  const int dim = call.dimension(1, 0, static_cast<int>(call.out_shape(0).size()));
  if (dim < 0 || parts.empty()) return {call.Lose(kFormUndeclared)};
  JoinConstants(parts);
  auto like = LikeParts(call, parts, -1);
  if (!like) return {call.Lose(kPartsDiffer)};
  if (like->is(Layout::kShard) && like->cut.dim >= dim) {
    ++like->cut.dim;
    like->state[kAxis] = Shard(DimAt(like->cut.dim));
  }
  return {*like};
}

// select_backward(grad, sizes, dim, index): zeros around.
std::vector<LocalRule> SelectBackward(const Call& call) {
  const int rank = static_cast<int>(call.out_shape(0).size());
  const int dim = call.dimension(2, 0, rank);
  LocalRule rule{.operands = {{0, {}}}, .result = {}, .linear = Linear(0)};
  if (dim < 0) rule.refused = kFormUndeclared;
  for (int d = 0; d < rank; ++d) {
    if (d != dim) rule.operands[0].labels.push_back(d);
    rule.result.push_back(d == dim ? kUnnamed : d);
  }
  // A constant has zeros around it afterwards: it is none any more.
  if (dim >= 0) rule.mixes = SetOf(DimAt(dim));
  return {rule};
}

// slice_backward(grad, sizes, dim, begin, end, step): the part in zeros. Of a shard along dim, a
// part of the block in zeros: in the whole, too, if the bounds halve.
std::vector<Value> SliceBackward(const Call& call) {
  const Value grad = call.value(0);
  if (grad.lost() || grad.is_zero()) return {grad};
  const int rank = static_cast<int>(call.out_shape(0).size());
  const int dim = call.dimension(2, 0, rank);
  const auto begin = call.number(3);
  if (dim < 0 || !begin || static_cast<int>(call.shape(0).size()) != rank)
    return {call.Lose(kFormUndeclared)};
  const bool varies = !begin->of_ranks.empty();
  const bool along = grad.is(Layout::kShard) && grad.cut.dim == dim;
  const int64_t whole = call.out_shape(0)[dim], part = call.shape(0)[dim];
  if (!along) {
    if (varies || begin->value != begin->twice)
      return {call.Lose(varies ? kRanksDiffer : kOtherPlace)};
    LocalRule rule{.operands = {{0, Numbered(rank)}},
                   .result = Numbered(rank),
                   .linear = Linear(0),
                   .mixes = SetOf(DimAt(dim))};
    return {Evaluate(call, rule)};
  }
  if (call.integer(5, 1) != 1) return {call.Lose(kFormUndeclared)};
  const int64_t whole_twice = call.traces().TwiceOf(call.traces().Out(call.op(), 0)).shape[dim];
  // Each rank's own part of the whole: the ranks' terms add up to it.
  if (varies) {
    bool own = whole == part * call.size() && whole == whole_twice && grad.cut.outer == 1;
    for (int r = 0; r < call.size(); ++r)
      own &= begin->of_ranks[r] == static_cast<double>(r * part);
    if (!own) return {call.Lose(kRanksDiffer)};
    if (!call.sections().Join(grad.strip)) return {call.Lose(kCutAndJoined)};
    return {StateValue(Apply({.map = Map::kPad, .dim = DimAt(dim)},
                             {.name = "tp", .atomic = {kAxis}}, grad.state, call.op()))};
  }
  if (part == whole) return {grad};
  const int64_t from = static_cast<int64_t>(begin->value);
  if (grad.cut.outer != 1 || begin->value != 2 * begin->twice || whole != 2 * whole_twice)
    return {call.Lose(kOtherPlace)};
  if (from < 0 || from + part > whole) return {call.Lose(kFormUndeclared)};
  const Strip strip = call.sections().NewStrip();
  Strip inside;
  const bool sound = call.sections().Part(strip, Fraction::Of(from, whole),
                                          Fraction::Of(from + part, whole), inside) &&
                     call.sections().Align(inside, grad.strip);
  if (!sound) return {call.Lose(kCutAndJoined)};
  return {ShardValue({.dim = dim, .outer = 1, .block = whole}, strip, grad.state.scale)};
}

}  // namespace

void RegisterJoin(DeclarationTable& table) {
  table.Add("cat", {.rule = Cat, .form = "l"});
  table.Add("stack", {.rule = Stack, .form = "l"});
  table.AddLocal("select_backward", "tlnn", SelectBackward, 1u << 1);
  table.Add("slice_backward",
            {.rule = SliceBackward, .form = "tlnn", .may_vary = 1u << 1 | 1u << 3 | 1u << 4});
}

}  // namespace sumonce::trace

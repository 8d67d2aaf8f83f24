// c10d's collectives: spmd's one table of maps.
#include "base/status.h"
#include "spmd/map.h"
#include "trace/declaration.h"

namespace sumonce::trace {
namespace {

const Group& TracedGroup() {
  static const auto& group = *new Group{.name = "tp", .atomic = {kAxis}};
  return group;
}

constexpr char kOtherReduction[] =
    "an all-reduce by another operation than SUM, AVG or MAX of maxima";

enum class Span { kAxis, kSelf, kOther };

// Over whom the call reaches: its argument that is a group.
Span SpanOf(const Call& call) {
  for (const Argument& argument : call.operation().args) {
    if (argument.kind != Argument::Kind::kGroup) continue;
    if (argument.items.size() == 1) return Span::kSelf;
    const std::vector<int64_t>& axis = call.traces().base().group;
    bool same = argument.items.size() == axis.size();
    for (size_t r = 0; same && r < axis.size(); ++r) same = argument.items[r].integer == axis[r];
    return same ? Span::kAxis : Span::kOther;
  }
  return Span::kOther;
}

std::string_view ReductionOf(const Call& call) {
  for (const Argument& argument : call.operation().args) {
    if (argument.kind == Argument::Kind::kReduce) return argument.text;
  }
  return "SUM";
}

Value Reduced(const Call& call, const Value& value) {
  const std::string_view reduction = ReductionOf(call);
  if (value.lost()) return value;
  if (value.is_zero() && reduction != "AVG" && reduction != "SUM")
    return call.Lose(kFormUndeclared);
  if (value.is_zero()) return value;
  if (const char* reason = Unusable(value)) return call.Lose(reason);
  // Slices that are the same on every rank, or constants of any extents, are only scaled.
  if (value.alike || value.kind == Kind::kUniform) {
    if (reduction == "AVG" || (reduction == "MAX" && value.state.scale.IsOne())) return value;
    if (reduction != "SUM") return call.Lose(kOtherReduction);
    Value summed = value;
    summed.number.reset();
    summed.state.scale = summed.state.scale * Scale::SizeOfAxis(kAxis);
    return summed;
  }
  const State& state = value.state;
  if (reduction == "SUM")
    return StateValue(Apply({.map = Map::kSum}, TracedGroup(), state, call.op()));
  if (reduction == "AVG")
    return StateValue(Apply({.map = Map::kAvg}, TracedGroup(), state, call.op()));
  if (reduction == "MAX" && state.scale.IsOne())
    return StateValue(Apply({.map = Map::kMax}, TracedGroup(), state, call.op()));
  return call.Lose(kOtherReduction);
}

// allreduce_([tensors], group, operation), in place; piece by piece where a buffer has pieces.
std::vector<Value> AllReduce(const Call& call) {
  const Span span = SpanOf(call);
  if (span == Span::kSelf) return {};
  for (const TensorRef& ref : call.traces().List(call.op(), 0)) {
    if (ref.id < 0) return {};
    const Value whole = span == Span::kOther ? call.Lose(kOtherGroup) : call.memory().Read(ref);
    const auto parts = whole.lost() && span == Span::kAxis ? call.memory().PartsOf(ref)
                                                           : std::vector<Memory::Part>{};
    if (parts.size() < 2) {
      call.memory().Write(ref, Reduced(call, whole));
      continue;
    }
    for (const Memory::Part& part : parts)
      call.memory().WriteAt(part.place, Reduced(call, part.value));
  }
  return {};
}

// _reduce_scatter_base_(out, in, group, operation).
Value Scattered(const Call& call) {
  const Value value = call.value(1);
  if (value.lost() || value.is_zero()) return value;
  if (const char* reason = Unusable(value)) return call.Lose(reason);
  const std::string_view reduction = ReductionOf(call);
  if (reduction != "SUM" && reduction != "AVG") return call.Lose(kFormUndeclared);
  State state =
      Apply({.map = Map::kReduceScatter, .dim = DimAt(0)}, TracedGroup(), value.state, call.op());
  if (state.lost) return StateValue(state);
  if (reduction == "AVG") state.scale = state.scale * Scale::SizeOfAxis(kAxis, -1);
  if (call.shape(0).empty()) return call.Lose(kFormUndeclared);
  const Strip strip = call.sections().NewStrip();
  call.sections().Join(strip);
  return ShardValue({.dim = 0, .outer = 1, .block = call.shape(0)[0]}, strip, state.scale);
}

std::vector<Value> ReduceScatter(const Call& call) {
  const Span span = SpanOf(call);
  const TensorRef out = call.traces().Argument(call.op(), 0);
  if (span == Span::kSelf) {
    call.memory().Write(out, call.value(1));
  } else {
    call.memory().Write(out, span == Span::kOther ? call.Lose(kOtherGroup) : Scattered(call));
  }
  return {};
}

// The slices of a shard along another dimension than the first: side by side, rank by rank.
void WriteSlices(const Call& call, const Value& shard) {
  const Memory::Place out = call.memory().PlaceOf(call.ref(0));
  const int64_t rows = call.shape(1)[0], rows_twice = call.shape_twice(1)[0];
  for (int rank = 0; rank < call.size(); ++rank) {
    Memory::Place place = out;
    place.at.shape[0] = rows;
    place.twice.shape[0] = rows_twice;
    place.at.offset += rank * rows * out.at.strides[0];
    place.twice.offset += rank * rows_twice * out.twice.strides[0];
    Value slice = shard;
    slice.kind = Kind::kRankSlice;
    slice.index = rank;
    slice.gather = call.op();
    call.memory().WriteAt(place, slice);
  }
}

// _allgather_base_(out, in, group).
std::vector<Value> AllGather(const Call& call) {
  const Span span = SpanOf(call);
  const TensorRef out = call.ref(0);
  const Value value = span == Span::kOther ? call.Lose(kOtherGroup) : call.value(1);
  const char* reason = value.lost() ? nullptr : Unusable(value);
  if (span == Span::kSelf || value.lost() || value.kind == Kind::kUniform || reason != nullptr) {
    call.memory().Write(out, reason != nullptr ? call.Lose(reason) : value);
    return {};
  }
  const bool ranks = call.shape(0).size() == call.shape(1).size() && !call.shape(0).empty();
  if (value.is(Layout::kShard) && value.cut.dim != 0 && value.cut.outer == 1 && ranks) {
    WriteSlices(call, value);
    return {};
  }
  State state =
      Apply({.map = Map::kAllGather, .dim = DimAt(0)}, TracedGroup(), value.state, call.op());
  if (!state.lost && value.cut.outer != 1) state.lost = {kSlicesSideBySide, call.op()};
  if (!state.lost && !call.sections().Join(value.strip)) state.lost = {kCutAndJoined, call.op()};
  call.memory().Write(out, StateValue(state));
  return {};
}

// Rank 0's copy of what is equal is what everybody has.
std::vector<Value> Broadcast(const Call& call) {
  const Span span = SpanOf(call);
  if (span == Span::kSelf) return {};
  for (const TensorRef& ref : call.traces().List(call.op(), 0)) {
    if (ref.id < 0) return {};
    const Value value = call.memory().Read(ref);
    const bool equal = value.is(Layout::kEqual) || value.kind == Kind::kUniform;
    if (span == Span::kOther) call.memory().Write(ref, call.Lose(kOtherGroup));
    if (span == Span::kAxis && !equal && !value.lost())
      call.memory().Write(ref, call.Lose("a broadcast of what differs between ranks"));
  }
  return {};
}

}  // namespace

void RegisterCollective(DeclarationTable& table) {
  table.Add("allreduce", {.rule = AllReduce, .form = "l", .writes_first = true});
  table.Add("allreduce_coalesced", {.rule = AllReduce, .form = "l", .writes_first = true});
  table.Add("_allgather_base", {.rule = AllGather, .form = "tt", .writes_first = true});
  table.Add("_reduce_scatter_base", {.rule = ReduceScatter, .form = "tt", .writes_first = true});
  table.Add("broadcast", {
                             .rule = Broadcast,
                             .form = "l",
                             .writes_first = true,
                         });
  const Rule nothing = [](const Call&) { return std::vector<Value>{}; };
  table.Add("barrier", {.rule = nothing, .may_vary = ~0u});
}

}  // namespace sumonce::trace

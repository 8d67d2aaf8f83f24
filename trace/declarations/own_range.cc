#include "trace/declarations/own_range.h"

#include "base/status.h"

namespace sumonce::trace {
namespace {

Value OfChain(Kind kind, int64_t block, const IndexOrigin& origin, const Scale& scale = {}) {
  Value value;
  value.kind = kind;
  value.block = block;
  value.origin = origin;
  value.state.scale = scale;
  return value;
}

// The number r * block or (r + 1) * block on rank r, halving with the size: `bound` 0 or 1.
bool IsBound(const NumberRef& number, int ranks, int64_t& block, int& bound) {
  if (static_cast<int>(number.of_ranks.size()) != ranks) return false;
  const double step = number.of_ranks[1] - number.of_ranks[0];
  block = static_cast<int64_t>(step);
  if (block <= 0 || static_cast<double>(block) != step) return false;
  for (int b = 0; b < 2; ++b) {
    bool fits = number.twice == b * step / 2;
    for (int r = 0; r < ranks; ++r) fits &= number.of_ranks[r] == (r + b) * step;
    bound = b;
    if (fits) return true;
  }
  return false;
}

bool SameRange(const Value& a, const Value& b) {
  return a.block == b.block && a.origin == b.origin;
}

// Back through copies to what made the indices.
IndexOrigin OriginOf(const Call& call, TensorRef ref) {
  const Geometry& geometry = call.traces().GeometryOf(ref);
  IndexOrigin origin{.op = -1, .order = OrderOf(geometry)};
  while (true) {
    origin.op = call.memory().Writer(ref);
    if (origin.op < 0) {
      origin.op = -2 - call.traces().StorageOf(ref);
      return origin;
    }
    const Operation& made = call.traces().base().ops[origin.op];
    const bool copy = BaseName(made.name) == "clone" && !made.args.empty() &&
                      made.args[0].kind == Argument::Kind::kTensor;
    if (!copy) return origin;
    ref = call.traces().Argument(origin.op, 0);
    origin.order = OrderOf(call.traces().GeometryOf(ref));
  }
}

bool WholeIndex(const Value& value) {
  return value.is(Layout::kEqual) && value.state.scale.IsOne();
}

// Whether a mask of `shape` lies over the looked-up entries of a tensor that has one for each index
// in its first dimensions.
bool LiesOver(const Extents& shape, const Extents& mask, const IndexOrigin& origin) {
  if (mask.size() != shape.size()) return false;
  size_t d = 0;
  int64_t count = 1;
  while (d < mask.size() && mask[d] == shape[d] && count < Count(origin.order)) count *= mask[d++];
  for (; d < mask.size(); ++d) {
    if (mask[d] != 1) return false;
  }
  return count == Count(origin.order);
}

std::optional<Value> Compare(const Call& call, std::string_view name) {
  int64_t block = 0;
  int bound = 0;
  const auto number = call.number(1);
  if (!number || number->of_ranks.empty()) return std::nullopt;
  if (!IsBound(*number, call.size(), block, bound)) return call.Lose(kRankNumber);
  const Value index = call.value(0);
  if (!WholeIndex(index)) return index.lost() ? index : call.Lose(kRankNumber);
  if (name == "sub") {
    if (bound != 0) return call.Lose(kRankNumber);
    return OfChain(Kind::kRelative, block, OriginOf(call, call.ref(0)));
  }
  Value value =
      OfChain(name == "lt" ? Kind::kBelow : Kind::kNotBelow, block, OriginOf(call, call.ref(0)));
  value.bound = bound;
  return value;
}

std::optional<Value> Outside(const Call& call) {
  const Value below = call.value(0), above = call.value(1);
  if (below.kind != Kind::kBelow && above.kind != Kind::kNotBelow) return std::nullopt;
  const bool partition = below.kind == Kind::kBelow && below.bound == 0 &&
                         above.kind == Kind::kNotBelow && above.bound == 1 &&
                         SameRange(below, above) && call.shape(0) == call.shape(1);
  return partition ? OfChain(Kind::kOutside, below.block, below.origin)
                   : call.Lose("the ranks' ranges are no partition");
}

std::optional<Value> Mask(const Call& call) {
  const Value value = call.value(0), mask = call.value(1);
  if (mask.kind != Kind::kOutside) return std::nullopt;
  const auto number = call.number(2);
  if (!number || number->value != 0)
    return call.Lose("a mask that fills with another number than 0");
  if (value.lost() || value.is_zero()) return value;
  if (!LiesOver(call.shape(0), call.shape(1), mask.origin))
    return call.Lose("a mask does not lie over what was looked up");
  if (value.kind == Kind::kRelative && SameRange(value, mask))
    return OfChain(Kind::kOwnIndex, mask.block, mask.origin);
  if (value.kind == Kind::kFound && SameRange(value, mask)) {
    State terms = value.state;
    terms[kAxis] = Partial(0);
    return StateValue(terms);
  }
  if (value.is(Layout::kEqual) || value.kind == Kind::kUniform)
    return OfChain(Kind::kOwnOnly, mask.block, mask.origin, value.state.scale);
  return call.Lose(kOwnRangeAlone);
}

std::optional<Value> Subtract(const Call& call) {
  const Value from = call.value(0);
  if (from.kind != Kind::kFound || !call.is_tensor(1)) return std::nullopt;
  const Value what = call.value(1);
  const bool own = what.kind == Kind::kInside && SameRange(what, from) &&
                   call.shape(0) == call.shape(1) && from.state.scale.IsOne();
  if (!own) return std::nullopt;
  Value value = from;
  value.kind = Kind::kFoundLessOwn;
  return value;
}

std::optional<Value> OneMinus(const Call& call) {
  const Value value = call.value(0);
  const auto number = call.number(1);
  if (value.kind != Kind::kOutside || !number || number->value != 1) return std::nullopt;
  return OfChain(Kind::kInside, value.block, value.origin);
}

bool InChain(const Value& value) {
  return value.kind != Kind::kState && value.kind != Kind::kUniform &&
         value.kind != Kind::kUninitialised && value.kind != Kind::kRankSlice;
}

// A copy of what is of the chain is it too; a conversion to another type changes no 0, 1 or index.
std::optional<Value> Copied(const Call& call) {
  Value value = call.value(0);
  if (!InChain(value)) return std::nullopt;
  return value;
}

std::optional<Value> Recognise(const Call& call, std::string_view name) {
  if (name == "lt" || name == "ge") return Compare(call, name);
  if (name == "sub") {
    if (const auto value = Subtract(call)) return value;
    return Compare(call, name);
  }
  if (name == "bitwise_or" || name == "logical_or") return Outside(call);
  if (name == "masked_fill") return Mask(call);
  if (name == "rsub") return OneMinus(call);
  if (name == "clone" || name == "_to_copy") return Copied(call);
  return std::nullopt;
}

// The position of the only own index; -1: none, or one of several.
int OwnIndex(const std::vector<std::optional<Value>>& indices) {
  for (size_t d = 0; d < indices.size(); ++d) {
    if (indices[d] && indices[d]->kind == Kind::kOwnIndex) return static_cast<int>(d);
  }
  return -1;
}

// Where the other indices beside the own one come from.
std::vector<IndexOrigin> Beside(const Call& call, const std::vector<TensorRef>& refs, int own) {
  std::vector<IndexOrigin> beside;
  for (size_t d = 0; d < refs.size(); ++d) {
    const bool other = static_cast<int>(d) != own && refs[d].id >= 0;
    beside.push_back(other ? OriginOf(call, refs[d]) : IndexOrigin());
  }
  return beside;
}

bool OthersWhole(const std::vector<std::optional<Value>>& indices, int own) {
  for (size_t d = 0; d < indices.size(); ++d) {
    if (static_cast<int>(d) != own && indices[d] && !WholeIndex(*indices[d])) return false;
  }
  return true;
}

}  // namespace

Rule OrOwnRange(Rule otherwise) {
  return [otherwise = std::move(otherwise)](const Call& call) -> std::vector<Value> {
    if (const auto value = Recognise(call, BaseName(call.operation().name))) return {*value};
    if (const auto number = call.number(1)) {
      if (!number->of_ranks.empty()) return {call.Lose(kRankNumber)};
      if (number->value != number->twice) return {call.Lose(kSizeNumber)};
    }
    return otherwise(call);
  };
}

std::optional<Value> FindInOwnRows(const Call& call, const Value& table, int storage,
                                   const std::vector<std::optional<Value>>& indices,
                                   const std::vector<TensorRef>& refs) {
  const int own = OwnIndex(indices);
  if (own < 0) return std::nullopt;
  const int64_t block = indices[own]->block;
  const bool fits = table.is(Layout::kShard) && table.cut.dim == own && table.cut.outer == 1 &&
                    table.cut.block == block && OthersWhole(indices, own);
  if (!fits) return call.Lose("the own range does not fit the table's rows");
  if (!call.sections().Join(table.strip)) return call.Lose(kCutAndJoined);
  Value found = OfChain(Kind::kFound, block, indices[own]->origin, table.state.scale);
  found.gather = storage;
  found.version = call.memory().Version(storage);
  found.beside = Beside(call, refs, own);
  return found;
}

std::optional<Value> PutInOwnRows(const Call& call, const Value& into, const Extents& shape,
                                  int storage, const std::vector<std::optional<Value>>& indices,
                                  const std::vector<TensorRef>& refs, const Value& values,
                                  bool accumulate) {
  const int own = OwnIndex(indices);
  if (own < 0) return std::nullopt;
  const int64_t block = indices[own]->block;
  if (!OthersWhole(indices, own) || own >= static_cast<int>(shape.size()))
    return call.Lose("the own range does not fit the table's rows");
  const Cut rows = {.dim = own, .outer = 1, .block = block};
  if (into.is_zero() && accumulate && values.kind == Kind::kOwnOnly &&
      SameRange(values, *indices[own]) && shape[own] == block) {
    const Strip strip = call.sections().NewStrip();
    call.sections().Join(strip);
    return ShardValue(rows, strip, values.state.scale);
  }
  // Where the index is another rank's, what was found is written back unchanged.
  const bool written_back = !accumulate && into.is(Layout::kShard) && into.cut == rows &&
                            into.state.scale.IsOne() && values.kind == Kind::kFoundLessOwn &&
                            SameRange(values, *indices[own]) && values.gather == storage &&
                            values.beside == Beside(call, refs, own) &&
                            values.version == call.memory().Version(storage);
  if (written_back) return into;
  return call.Lose(kOwnRangeAlone);
}

}  // namespace sumonce::trace

// Look-ups in tables, and writes to looked-up places.
#include "base/status.h"
#include "trace/declaration.h"
#include "trace/declarations/labels.h"
#include "trace/declarations/own_range.h"

namespace sumonce::trace {
namespace {

using Indices = std::vector<std::optional<Value>>;

// The entries of a list argument: tensors, or None for a dimension that is not indexed.
struct IndexList {
  Indices values;
  std::vector<TensorRef> refs;
  int first = -1, last = -1;  // that are tensors
  bool consecutive = true;
  bool masks = false;  // some tensor is a mask: how many entries it takes is in the data
};

IndexList ReadIndices(const Call& call, int position) {
  IndexList list;
  const std::vector<TensorRef> refs = call.traces().List(call.op(), position);
  const auto& items = call.operation().args[position].items;
  for (size_t d = 0; d < items.size(); ++d) {
    const bool tensor = items[d].kind == Argument::Kind::kTensor;
    list.values.push_back(tensor ? std::optional(call.memory().Read(refs[d])) : std::nullopt);
    list.refs.push_back(refs[d]);
    if (!tensor) continue;
    list.masks |= call.traces().base().tensor(refs[d].id).dtype == "bool";
    if (list.first < 0) list.first = static_cast<int>(d);
    list.consecutive &= list.last < 0 || list.last == static_cast<int>(d) - 1;
    list.last = static_cast<int>(d);
  }
  return list;
}

const Value* LostOf(const Indices& indices) {
  for (const auto& index : indices) {
    if (index && index->lost()) return &*index;
  }
  return nullptr;
}

bool WholeOrConstant(const Value& value) {
  const bool known = value.kind == Kind::kUniform || value.is(Layout::kEqual);
  return known && value.state.scale.IsOne();
}

// The whole table at sharded indices: one of them, of the table's first dimension.
bool IsSharded(const Indices& indices) {
  return indices.size() == 1 && indices[0] && indices[0]->is(Layout::kShard) &&
         indices[0]->state.scale.IsOne();
}

// table[index...]: the index's dimensions take the place of the indexed ones.
Value Find(const Call& call, const Value& table, const Extents& shape, const IndexList& list,
           int index_rank) {
  if (table.lost()) return table;
  if (const Value* lost = LostOf(list.values)) return *lost;
  const int storage = call.traces().StorageOf(call.ref(0));
  if (const auto found = FindInOwnRows(call, table, storage, list.values, list.refs)) return *found;
  if (const char* reason = Unusable(table)) return call.Lose(reason);
  if (list.masks && !(table.is(Layout::kEqual) || table.is(Layout::kPartial)))
    return call.Lose("a mask takes entries of a shard");
  if (list.masks && IsSharded(list.values)) return call.Lose("a mask that is a shard");
  if (IsSharded(list.values) && table.is(Layout::kEqual)) {
    Value rows = *list.values[0];
    rows.state.scale = table.state.scale;
    return rows;
  }
  for (const auto& index : list.values) {
    if (index && !WholeOrConstant(*index)) return call.Lose("an index that is no whole one");
  }
  if (!table.is(Layout::kShard)) {
    const bool maxima = table.is(Layout::kMaxima) || table.is(Layout::kMixed);
    return maxima ? call.Lose(kFormUndeclared) : table;
  }
  const int dim = table.cut.dim;
  if (!list.consecutive || list.first < 0) return call.Lose(kFormUndeclared);
  if (dim >= list.first && dim <= list.last)
    return call.Lose("whole-table indices into rows that are cut");
  Value found = table;
  if (dim > list.last) found.cut.dim += index_rank - (list.last - list.first + 1);
  found.state[kAxis] = Shard(DimAt(found.cut.dim));
  return found.cut.dim < static_cast<int>(shape.size()) ? found : call.Lose(kFormUndeclared);
}

int RankOf(const Call& call, const IndexList& list) {
  int rank = 0;
  for (const TensorRef& ref : list.refs) {
    if (ref.id >= 0)
      rank = std::max(rank, static_cast<int>(call.traces().GeometryOf(ref).shape.size()));
  }
  return rank;
}

std::vector<Value> Index(const Call& call) {
  const IndexList list = ReadIndices(call, 1);
  return {Find(call, call.value(0), call.out_shape(0), list, RankOf(call, list))};
}

// embedding(table, index).
std::vector<Value> Embedding(const Call& call) {
  IndexList list;
  list.values = {call.value(1)};
  list.refs = {call.ref(1)};
  list.first = list.last = 0;
  return {Find(call, call.value(0), call.out_shape(0), list, RankOf(call, list))};
}

// index_select(x, dim, index).
std::vector<Value> IndexSelect(const Call& call) {
  const int dim = call.dimension(1, 0, static_cast<int>(call.shape(0).size()));
  if (dim < 0 || call.shape(2).size() != 1) return {call.Lose(kFormUndeclared)};
  IndexList list;
  list.values.resize(dim);
  list.values.push_back(call.value(2));
  list.refs = {call.ref(2)};
  list.first = list.last = dim;
  return {Find(call, call.value(0), call.out_shape(0), list, 1)};
}

// gather(x, dim, index): the other dimensions belong together.
std::vector<LocalRule> Gather(const Call& call) {
  const int rank = static_cast<int>(call.shape(0).size());
  const int dim = call.dimension(1, 0, rank);
  LocalRule rule{.operands = {{0, Numbered(rank)}, {2, Numbered(rank)}},
                 .result = Numbered(rank),
                 .linear = Linear(0)};
  if (dim < 0 || call.shape(2).size() != call.shape(0).size()) {
    rule.refused = kFormUndeclared;
    return {rule};
  }
  // An index may be shorter than x. Of a cut dimension a rank's own indices then name others'
  // entries; shards of unlike blocks, which x and index are, do not meet (evaluate.cc).
  rule.mixes = SetOf(DimAt(dim));
  rule.operands[1].labels[dim] = rank;
  rule.result[dim] = rank;
  return {rule};
}

// embedding_dense_backward(grad, index, rows, padding, scale_by_frequency).
std::vector<Value> EmbeddingBackward(const Call& call) {
  const Value grad = call.value(0), index = call.value(1);
  if (grad.lost()) return {grad};
  if (index.lost()) return {index};
  if (call.flag(4, false) || call.integer(3, -1) >= 0) return {call.Lose(kFormUndeclared)};
  if (const auto rows = PutInOwnRows(call, UniformValue(0.0), call.out_shape(0), -1, {index},
                                     {call.ref(1)}, grad, true)) {
    return {*rows};
  }
  const int width = static_cast<int>(call.shape(1).size());
  LocalRule rule{.operands = {{0, Numbered(call.shape(0).size())}, {1, Numbered(width)}},
                 .result = {kMaxLabels - 1, width},
                 .linear = Linear(0)};
  for (int d = 0; d < width; ++d) rule.sums |= SetOf(DimAt(d));
  if (static_cast<int>(call.shape(0).size()) != width + 1) rule.refused = kFormUndeclared;
  return {Evaluate(call, rule)};
}

// Constants put to places: a whole value, or a shard along the dimension whose extents halve.
Value PutConstants(const Call& call, const Value& constant) {
  const Extents& shape = call.shape(2);
  const Extents& twice = call.shape_twice(2);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 2 * twice[d]) continue;
    Value shard = ShardValue({.dim = static_cast<int>(d), .outer = 1, .block = shape[d]},
                             call.sections().NewStrip(), constant.state.scale);
    shard.alike = true;
    return shard;
  }
  return StateValue(StateOfConstant(constant));
}

// Values that are cut along a dimension of the table's which is not indexed.
std::optional<Value> PutInShard(const Call& call, const IndexList& list, const Value& into,
                                const Value& values) {
  if (!into.is_zero() || !values.is(Layout::kShard) || !list.consecutive || list.first < 0)
    return std::nullopt;
  const int indices = list.last - list.first + 1, rank = RankOf(call, list);
  const bool all = call.shape(2).size() + static_cast<size_t>(indices) ==
                   call.shape(0).size() + static_cast<size_t>(rank);
  const bool before = values.cut.dim < list.first, after = values.cut.dim >= list.first + rank;
  if (!all || (!before && !after)) return std::nullopt;
  Value put = values;
  if (after) put.cut.dim += indices - rank;
  put.state[kAxis] = Shard(DimAt(put.cut.dim));
  return put;
}

// index_put(into, indices, values, accumulate).
std::vector<Value> IndexPut(const Call& call) {
  const Value into = call.value(0);
  Value values = call.value(2);
  if (into.lost()) return {into};
  if (values.lost()) return {values};
  const IndexList list = ReadIndices(call, 1);
  if (const Value* lost = LostOf(list.values)) return {*lost};
  const bool accumulate = call.flag(3, false);
  // Values that are repeated lie over the table's other dimensions, not over the indices.
  const size_t indexed = std::count_if(list.refs.begin(), list.refs.end(),
                                       [](const TensorRef& ref) { return ref.id >= 0; });
  const bool repeated = call.shape(2).size() + indexed !=
                        call.shape(0).size() + static_cast<size_t>(RankOf(call, list));
  if (repeated && Unusable(values) != nullptr) return {call.Lose(kFormUndeclared)};
  const int storage = call.traces().StorageOf(call.ref(0));
  if (const auto put = PutInOwnRows(call, into, call.shape(0), storage, list.values, list.refs,
                                    values, accumulate)) {
    return {*put};
  }
  if (list.masks) return {call.Lose(kFormUndeclared)};
  for (const Value* value : {&into, &std::as_const(values)}) {
    if (const char* reason = Unusable(*value)) return {call.Lose(reason)};
  }
  bool whole = true;
  for (const auto& index : list.values) whole &= !index || WholeOrConstant(*index);
  if (whole) {
    if (values.kind == Kind::kUniform && !values.is_zero()) values = PutConstants(call, values);
    const bool terms = values.is(Layout::kEqual) || values.is(Layout::kPartial) || values.is_zero();
    if (into.is_zero() && terms) return {values};
    if (into.is(Layout::kEqual) && SameState(into, values)) return {into};
    if (const auto put = PutInShard(call, list, into, values)) return {*put};
    return {call.Lose("indexed places are filled with another state than the rest")};
  }
  // Sharded indices: each rank adds up the places of its own.
  const bool own_rows = IsSharded(list.values) && accumulate && into.is_zero() &&
                        values.is(Layout::kShard) && list.consecutive &&
                        values.cut == list.values[0]->cut &&
                        call.sections().Align(values.strip, list.values[0]->strip);
  if (!own_rows) return {call.Lose("an index that is no whole one")};
  State terms = values.state;
  terms[kAxis] = Partial(0);
  return {StateValue(terms)};
}

}  // namespace

void RegisterLookup(DeclarationTable& table) {
  table.Add("index", {.rule = Index, .form = "tl"});
  table.Add("embedding", {.rule = Embedding, .form = "tt"});
  table.Add("index_select", {.rule = IndexSelect, .form = "tnt"});
  table.AddLocal("gather", "tnt", Gather);
  table.Add("embedding_dense_backward",
            {.rule = EmbeddingBackward, .form = "tt", .may_vary = 1u << 2});
  table.Add("index_put", {.rule = IndexPut, .form = "tlt"});
}

}  // namespace sumonce::trace

// Look-ups in a table whose rows are cut over the ranks: each rank looks up the indices in its own
// range [r * block, (r + 1) * block) and masks the others, so that the results are terms of a sum
// (Megatron's VocabParallelEmbedding and vocab_parallel_cross_entropy). Ten operations in a fixed
// order; each recognises what the one before it made (docs/TRACE.md "Own range").
#pragma once

#include "trace/declaration.h"

namespace sumonce::trace {

// The rule for the operations of the chain, where their operands are of the chain; else
// `otherwise`.
Rule OrOwnRange(Rule otherwise);

// table[index] and its gradient with an own index; nothing if `index` is none. `refs`: the indices'
// tensors.
std::optional<Value> FindInOwnRows(const Call& call, const Value& table, int storage,
                                   const std::vector<std::optional<Value>>& indices,
                                   const std::vector<TensorRef>& refs);
std::optional<Value> PutInOwnRows(const Call& call, const Value& into, const Extents& shape,
                                  int storage, const std::vector<std::optional<Value>>& indices,
                                  const std::vector<TensorRef>& refs, const Value& values,
                                  bool accumulate);

}  // namespace sumonce::trace

// An operation of spmd/ops as the aten operations that a framework runs for it, so that what the
// simulator computes can be traced like a job. One entry an operation; what has none is refused by
// name.
#pragma once

#include <vector>

#include "spmd/operation.h"
#include "trace/record/graph.h"

namespace sumonce::trace::record {

// One application on a rank.
struct Application {
  const sumonce::Operation* operation = nullptr;
  const Declaration* declaration = nullptr;
  std::vector<int> operands;  // tensors of the graph
  std::vector<Dims> dims;     // theirs
};

Extents ShapeOf(const Dims& dims);

// The result, of the declared dimensions. Sets graph.failure if the operation has no entry.
int Lower(Graph& graph, const Application& application);

}  // namespace sumonce::trace::record

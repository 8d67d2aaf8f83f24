// The operations that mix tokens, in aten (trace/record/lowering.h).
#pragma once

#include "trace/record/lowering.h"

namespace sumonce::trace::record {

int LowerAttention(Graph& graph, const Application& at);
int LowerCausalConv(Graph& graph, const Application& at);
int LowerDeltaRule(Graph& graph, const Application& at);

}  // namespace sumonce::trace::record

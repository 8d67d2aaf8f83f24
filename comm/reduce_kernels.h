// Internal to comm/reduce*: what the kernels of the instruction sets have in common with the
// dispatcher.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "comm/reduce.h"

namespace sumonce::internal {

// The arguments of one reduction as comm/reduce.h describes it: `in` has `ranks` pointers, `out`
// has `outs`.
struct ReduceOperands {
  ReduceOp op;
  const void* const* in;
  int ranks;
  void* const* out;
  int outs;
  int64_t count;  // elements
};

struct ReduceKernels {
  using Function = void (*)(const ReduceOperands&);

  Function float64;
  Function float32;
  Function bfloat16;
  Function int64;
  Function int32;
};

// 16-byte vectors, which every CPU of the build's architecture has.
const ReduceKernels* BaselineReduceKernels();
// Null if this build or this CPU lacks the instruction set.
const ReduceKernels* Avx2ReduceKernels();
const ReduceKernels* Avx512ReduceKernels();

}  // namespace sumonce::internal

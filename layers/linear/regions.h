// What a tensor-parallel linear does at its edges, chosen by the module attribute
// sequence_parallel as Transformer Engine reads it: at this call.
#pragma once

#include "spmd/collectives.h"

namespace sumonce {

// In front of a column-parallel weight: [s/tp, b, ...] gathered, its dgrad reduce-scattered; or the
// whole passed on, its dgrad all-reduced.
inline Value EnterColumnParallel(Tape& tape, Value x, bool sequence_parallel) {
  return sequence_parallel
             ? AllGather(tape, x, Axis::kTp, Dim::kSequence, GatherGrad::kReduceScatter)
             : CopyToRegion(tape, x, Axis::kTp);
}

// Behind a row-parallel weight: partial sums reduce-scattered over s, or all-reduced.
inline Value LeaveRowParallel(Tape& tape, Value y, bool sequence_parallel) {
  return sequence_parallel ? ReduceScatter(tape, y, Axis::kTp, Dim::kSequence)
                           : ReduceFromRegion(tape, y, Axis::kTp);
}

}  // namespace sumonce

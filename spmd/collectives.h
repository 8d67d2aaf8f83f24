// The dual pairs by their field names (docs/THEORY.md "Pairs of maps"; Megatron-Core
// tensor_parallel/mappings.py). Each backward map is the transpose of the forward one under the
// type that it converts.
#pragma once

#include "spmd/tape.h"

namespace sumonce {

enum class GatherGrad : uint8_t {
  kReduceScatter,  // the consumer's input gradients are terms: tensor_parallel_output_grad=True
  kSplit,          // each rank's input gradient is complete: tensor_parallel_output_grad=False
};

Value CopyToRegion(Tape& tape, Value x, Axis axis);      // identity | sum              ("f")
Value ReduceFromRegion(Tape& tape, Value x, Axis axis);  // sum | identity              ("g")
Value AllReduceBoth(Tape& tape, Value x, Axis axis);     // sum | sum
Value AllGather(Tape& tape, Value x, Axis axis, Dim dim, GatherGrad grad);
Value ReduceScatter(Tape& tape, Value x, Axis axis, Dim dim);    // reduce-scatter | all-gather
Value ScatterToRegion(Tape& tape, Value x, Axis axis, Dim dim);  // split | all-gather
Value SliceReplicated(Tape& tape, Value x, Axis axis, Dim dim);  // split | pad
Value AllToAll(Tape& tape, Value x, Axis axis, Dim from, Dim to);
Value OwnerOnly(Tape& tape, Value x, Axis axis);  // own | own
// max | no gradient. Only for a maximum that what reads it does not depend on, as softmax's.
Value StopMax(Tape& tape, Value x, Axis axis);

// Every pair above, for the obligations (spmd/map_test.cc): a dual pair is its own transpose under
// the types in its name.
struct CollectivePair {
  std::string name;
  MapArgs forward;
  MapArgs backward;
  bool dual = true;
  std::string why_not;  // when deliberately not dual
};
std::vector<CollectivePair> CollectivePairs();

}  // namespace sumonce

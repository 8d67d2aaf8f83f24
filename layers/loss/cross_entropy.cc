#include "layers/loss/cross_entropy.h"

#include "spmd/collectives.h"
#include "spmd/ops/dot.h"
#include "spmd/ops/log.h"
#include "spmd/ops/max_over.h"
#include "spmd/ops/shift.h"
#include "spmd/ops/subtract.h"
#include "spmd/ops/sum_exp.h"

namespace sumonce {

Value VocabParallelCrossEntropy(Tape& tape, Value logits, Value target_one_hot) {
  const Value largest = StopMax(tape, MaxOver(tape, logits), Axis::kTp);
  const Value shifted = Shift(tape, logits, largest);
  const Value sum_exp = ReduceFromRegion(tape, SumExp(tape, shifted), Axis::kTp);
  // Zero on the ranks that do not hold the target.
  const Value own_target = Dot(tape, shifted, target_one_hot, {.over = SetOf(Dim::kVocab)});
  const Value target = ReduceFromRegion(tape, own_target, Axis::kTp);
  return Subtract(tape, Log(tape, sum_exp), target);
}

Value WeightedSum(Tape& tape, Value token_losses, Value weights) {
  return Dot(tape, token_losses, weights, {.over = SetOf(Dim::kSequence, Dim::kBatch)});
}

}  // namespace sumonce

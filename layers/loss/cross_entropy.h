// Masked cross-entropy over a vocabulary cut by tp (megatron/core/tensor_parallel/cross_entropy.py;
// formulas: spec/gdn-lora-math.md section 8).
#pragma once

#include "spmd/tape.h"

namespace sumonce {

// The loss of each token, in nats: log sum_v e^(x_v - m) - (x_target - m), m the largest logit,
// held constant.
//   logits, target_one_hot: [s, b, v/tp] -> [s, b], equal on all tp ranks. The reductions hand
//   their gradient through unsummed: every rank's loss is the same number, not a term.
Value VocabParallelCrossEntropy(Tape& tape, Value logits, Value target_one_hot);

// Sum of token losses times the tokens' weights. Both [s, b] -> []; over a cut dimension partial.
Value WeightedSum(Tape& tape, Value token_losses, Value weights);

}  // namespace sumonce

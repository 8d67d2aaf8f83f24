// What a simulation will keep in memory, before it starts. Everything is float64, and every rank
// lives in this process.
#pragma once

#include "sim/scenario.h"

namespace sumonce {

// Bytes. For a rank's trained parameter of n elements, with u uses a microbatch, m microbatches and
// a finalizer of k steps:
//
//   kept all the time    (weight, main_grad, two moments)                                4 n
//   in each recorded step (contribution, m terms, u uses, k results, the new weight)     (2 + m + u
//   + k) n
//
// and 1 n for a frozen one. The same of the unsharded reference, and once more for what is joined
// to be compared with it; the weights that both start from. A second run of the ranks where a cure
// is tried beside it. While a microbatch runs, every value on a rank's tape and its gradient. For
// all steps the tokens and targets, one-hot. Measured peaks were 0.63 to 0.85 of it.
struct MemoryEstimate {
  double parameters = 0;   // weights, gradients, moments, records
  double activations = 0;  // values and gradients on the tapes of all ranks, of one microbatch
  double data = 0;         // tokens, targets, probes
  double total() const { return parameters + activations + data; }
};

// Takes a proof's time, and allocates nothing of these sizes.
MemoryEstimate EstimateMemory(const Scenario& scenario);

}  // namespace sumonce

// The data of a step: tokens, targets and loss mask of the whole global batch, keyed by (seed,
// name, global index), so that a rank's share is a slice of the whole's.
#pragma once

#include "absl/status/statusor.h"
#include "sim/scenario.h"

namespace sumonce {

// One microbatch of all dp ranks: whole tensors.
struct Microbatch {
  Tensor tokens_one_hot;   // [s, b, v]
  Tensor targets_one_hot;  // [s, b, v]
  Tensor loss_weights;     // [s, b]: the mask, or mask / (counted tokens of the cell * cells)
  Tensor probe;            // [s, b, h], head PROBE only
  Tensor cos, sin;         // [s, d] rotary tables from a file, else empty
  double num_tokens = 0;   // counted ones, over all dp ranks
  SequenceStarts sequence_starts;  // of packed sequences
  std::string name;                // "data.step1.microbatch0.": what random numbers are drawn by
  uint64_t seed = 0;
  double dropout = 0;  // of adapters
};

// The microbatches of step `step` (1, 2, ...). `mesh` gives dp; the data does not depend on how it
// is cut otherwise.
absl::StatusOr<std::vector<Microbatch>> MakeData(const Scenario& scenario, int step);

// Rotary tables of a data file (frameworks round theirs) into the attention layers; nothing without
// a file or tables.
absl::Status UseRotaryTables(Scenario& scenario);

SequenceStarts StartsOf(const DataConfig& data);  // of the packed sequences; empty: one

BatchInputs InputsOf(const Microbatch& microbatch);  // refers to `microbatch`

// Mean-of-cells mode seeds each cell with dp/N relative to the reference: the monomial that says so
// (docs/THEORY.md "Loss").
Scale LossScale(const Scenario& scenario, const Mesh& mesh);

}  // namespace sumonce

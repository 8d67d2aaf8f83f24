// The forms of adapters on a fused projection: one on the whole of it, or one on each of its
// sub-projections (LoraConfig::per_sub_projection), and the way from either to the other.
#pragma once

#include "sim/weights.h"

namespace sumonce {

// The adapter weights of `from` for the parameters of `to`, by name; whole weights. Both models
// compute the same with them, if their scaling is the same:
//   fused -> sub-projections: each has the whole lora_A and its own rows of lora_B, of r ranks;
//   sub-projections -> fused: lora_A stacks theirs, lora_B has each in its rows and ranks and zeros
//   elsewhere, so that `to` must have as many ranks as they have together.
// Adapters of the same form are handed on. InvalidArgument, naming the parameter and both shapes,
// where the ranks do not fit; NotFound where `from` has neither form.
absl::StatusOr<Weights> ConvertAdapters(const ModelConfig& model, const Weights& from,
                                        const ParamStore& to);

}  // namespace sumonce

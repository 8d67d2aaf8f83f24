// Weights under Hugging Face's names (one matrix per sub-projection, an adapter on each), as the golden files and public
// checkpoints have them, packed into the fused parameters of this model. A fused adapter is the block-diagonal form of its
// sub-projections' adapters: lora_A stacks theirs, lora_B holds theirs on the diagonal blocks and zeros elsewhere.
#pragma once

#include "absl/status/statusor.h"
#include "base/safetensors.h"
#include "sim/scenario.h"
#include "sim/weights.h"

namespace sumonce {

// The file has "param.embed" or "model.embed_tokens.weight".
bool HasHfNames(const SafetensorsReader& file);

// InvalidArgument names a missing tensor or a shape that does not fit, with both shapes.
absl::StatusOr<Weights> ImportHfWeights(const Scenario& scenario, const SafetensorsReader& file, const ParamStore& params);

// The inverse for comparisons: the whole gradient of a fused parameter, as the file's tensors see it: (file name without
// "param.", values in the file's order). Off-diagonal adapter blocks have no counterpart and are left out.
absl::StatusOr<std::map<std::string, std::vector<double>>> ToHfTensors(const Scenario& scenario, const ParamStore& params,
                                                                       const Weights& tensors);

}  // namespace sumonce

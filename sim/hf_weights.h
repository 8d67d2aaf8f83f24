// Weights under Hugging Face's names (one matrix per sub-projection, an adapter on each), as the
// golden files have them, packed into the fused parameters of this model. A fused adapter is the
// block-diagonal form of its sub-projections' adapters: lora_A stacks theirs, lora_B holds theirs
// on the diagonal blocks and zeros elsewhere (lora.separate_adapters).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/safetensors.h"
#include "sim/scenario.h"
#include "sim/weights.h"

namespace sumonce {

// The file has the embedding under its golden name, "param.embed".
bool HasHfNames(const SafetensorsReader& file);

// One tensor of such a file, as elements of a fused parameter: element i is the parameter's element
// indices[i].
struct HfTensor {
  std::string name;  // "layers.0.linear_attn.in_proj_qkv.lora_B"
  std::vector<int64_t> indices;
};
// The tensors that make up a parameter. Off-diagonal adapter blocks belong to none.
std::vector<HfTensor> HfTensorsOf(const ModelConfig& model, const Param& param);

// InvalidArgument names a missing tensor or one of another size, with both sizes.
absl::StatusOr<Weights> ImportHfWeights(const Scenario& scenario, const SafetensorsReader& file,
                                        const ParamStore& params);

}  // namespace sumonce

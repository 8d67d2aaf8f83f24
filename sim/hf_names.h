// How the fused projections of this model correspond to Hugging Face's modules: which rows of a
// fused matrix are which sub-projection's (spec of the packings: docs/THEORY.md "GatedDeltaNet";
// transformers' Qwen3-Next and Qwen3.5 layers). One place for export, import and comparison.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/scenario.h"

namespace sumonce {

struct SubProjection {
  std::string name;           // "q_proj"
  std::vector<int64_t> rows;  // its rows, as rows of the fused matrix
};

struct HfModule {
  std::string parent;  // "layers.0.self_attn"
  std::vector<SubProjection> parts;
};

// Of a linear module, "decoder.layers.0.self_attention.linear_qkv", or of a sub-projection that has
// an adapter of its own, "....linear_qkv.q_proj", whose rows are then those of its own factor; none
// for another path.
std::optional<HfModule> HfModuleOf(const ModelConfig& model, const std::string& module);

// "decoder.layers.0.self_attention.linear_qkv" of "....linear_qkv.lora_B".
std::string ModuleOf(const std::string& param);

}  // namespace sumonce

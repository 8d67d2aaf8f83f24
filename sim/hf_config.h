// A model's Hugging Face config.json, and an adapter's adapter_config.json, as a scenario: what a
// training of that model with that adapter would be on a mesh, at its real size.
//
// Read are dense decoders of full attention and GatedDeltaNet layers (Llama, Qwen2 and Qwen3,
// Qwen3-Next and Qwen3.5 without experts). What the layers here do not model (experts, multi-latent
// attention, an unknown activation or layer type, DoRA, a trained bias) is a mistake by its key,
// never left out in silence, and so is any model_type that is not in the list; what changes no
// gradient's class (rope, window, dropout) is passed by.
#pragma once

#include <string>
#include <vector>

#include "sim/scenario_reader.h"

namespace sumonce {

struct HfRun {
  std::string config;   // config.json, or a folder that holds it
  std::string adapter;  // adapter_config.json, or a folder that holds it; empty: full training
  MeshSizes mesh = {.tp = 2, .dp = 2};
  bool sequence_parallel = true;
  bool gather_region = false;  // GatedDeltaNet as mcore-bridge runs it
  std::string finalizer;       // empty: the scenario's default
};

struct HfScenario {
  std::string text;                // a scenario file
  std::vector<Mistake> mistakes;   // each with its file; empty: the text stands
  std::vector<std::string> notes;  // what was taken for what, a sentence each
};

// The vocabulary is padded as Megatron pads it, to a multiple of 128 tp.
HfScenario ScenarioOfHfConfig(const HfRun& run);

}  // namespace sumonce

// Exports the trained LoRA factors as a PEFT adapter, as mcore-bridge does (bridge/gpt_bridge.py):
// sharded factors are gathered over tp, a replicated one is tp rank 0's copy, with no average and
// no check; a fused projection's lora_B is cut into its sub-projections' rows and its lora_A is
// written for each.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "base/safetensors.h"
#include "sim/record.h"
#include "sim/scenario.h"

namespace sumonce {

// The tensors of adapter_model.safetensors after the last recorded step, float32, by PEFT's names
// ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight").
std::map<std::string, TensorToWrite> AdapterTensors(const Scenario& scenario,
                                                    const RunRecord& record);

// Writes adapter_model.safetensors and adapter_config.json into `dir` (made if absent).
// AlreadyExists, and nothing is written, if one of them is there, unless `overwrite`. Modules of
// another rank than r (separate adapters) have theirs and their alpha in rank_pattern and
// alpha_pattern.
absl::Status ExportAdapter(const Scenario& scenario, const RunRecord& record,
                           const std::string& dir, bool overwrite);

}  // namespace sumonce

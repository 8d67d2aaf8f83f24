// Grouped-query self-attention with norms of q and k, partial RoPE and an output gate
// (Megatron-Core transformer/attention.py; formulas: spec/gdn-lora-math.md section 7). tp cuts
// key-value groups.
#pragma once

#include <memory>

#include "layers/linear/parallel_linear.h"
#include "layers/module.h"
#include "layers/norm/rms_norm.h"
#include "spmd/ops/rope.h"

namespace sumonce {

struct SelfAttentionConfig {
  int64_t hidden = 16;
  int64_t num_query_groups = 2;  // key-value heads
  int64_t heads_per_group = 2;
  int64_t head_dim = 8;
  RopeOptions rope = {.rotary_dim = 4};  // rotary_dim 0: none
  bool qk_layernorm = true;
  bool output_gate = false;
  bool bias = false;       // of linear_qkv and linear_proj
  bool layer_norm = true;  // RMSNorm fused in front of linear_qkv
};

// Modules linear_qkv (column: per group [q heads | gate heads | k | v]), q_layernorm, k_layernorm,
// linear_proj (row).
class SelfAttention {
 public:
  SelfAttention(const Builder& builder, const SelfAttentionConfig& config);
  Value Forward(Tape& tape, Value x);  // [s(/tp), b, h] -> as x
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  Value Heads(Tape& tape, Value qkv, int part, bool query);  // [s, b, g, (q,) d]
  Value Rotated(Tape& tape, Value x, std::unique_ptr<RmsNormLayer>& norm);

  std::string name_;
  SelfAttentionConfig config_;
  ColumnParallelLinear linear_qkv_;
  RowParallelLinear linear_proj_;
  std::unique_ptr<RmsNormLayer> q_layernorm_;
  std::unique_ptr<RmsNormLayer> k_layernorm_;
};

}  // namespace sumonce

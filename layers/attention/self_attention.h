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

// How tp cuts the key-value groups. kCut: whole groups on each rank. With fewer groups than ranks,
// ranks share one: kSlices: linear_qkv's rows are cut anywhere, its output is gathered and each
// rank takes its group and its queries (Megatron-Core's attention.py). kCopies: linear_q's rows are
// cut by heads, and linear_kv is held as a copy by the ranks that share a group; its gradient is a
// term on each of them, and no finalizer of Megatron sums over just these.
enum class KvRegime : uint8_t { kCut, kSlices, kCopies };

struct SelfAttentionConfig {
  int64_t hidden = 16;
  int64_t num_query_groups = 2;  // key-value heads
  int64_t heads_per_group = 2;
  int64_t head_dim = 8;
  RopeOptions rope = {.rotary_dim = 4};  // rotary_dim 0: none
  bool qk_layernorm = true;
  bool output_gate = false;
  bool bias = false;       // of linear_qkv and linear_proj
  bool layer_norm = true;  // RMSNorm fused in front of linear_qkv; kCopies: input_layernorm instead
  KvRegime regime = KvRegime::kCut;
  bool kv_copies = false;  // which of the two regimes fewer groups than tp ranks would be run in
};

// Modules linear_qkv (column: per group [q heads | gate heads | k | v]; kCopies: linear_q and
// linear_kv), q_layernorm, k_layernorm, linear_proj (row).
class SelfAttention {
 public:
  SelfAttention(const Builder& builder, const SelfAttentionConfig& config);
  Value Forward(Tape& tape, Value x);  // [s(/tp), b, h] -> as x
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  // The rank's own: q and gate [s, b, g, q, d], k and v [s, b, g, d].
  struct Projected {
    Value q, gate, k, v;
  };
  Projected Project(Tape& tape, Value x);
  Projected ProjectApart(Tape& tape, Value x);
  Value Heads(Tape& tape, Value fused, int part, bool query);  // [s, b, g, (q,) d]
  Value Rotated(Tape& tape, Value x, std::unique_ptr<RmsNormLayer>& norm);

  std::string name_;
  SelfAttentionConfig config_;
  std::unique_ptr<ColumnParallelLinear> linear_qkv_, linear_q_, linear_kv_;
  RowParallelLinear linear_proj_;
  std::unique_ptr<RmsNormLayer> q_layernorm_;
  std::unique_ptr<RmsNormLayer> k_layernorm_;
};

}  // namespace sumonce

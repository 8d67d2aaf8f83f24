// Multi-latent attention (DeepSeek-V2; megatron/core/transformer/multi_latent_attention.py):
// queries and keys with values come from low-rank latents, and one rotary key serves all heads. tp
// cuts heads.
//
// The rotary key is used by each rank's own heads, so its gradient is a term. Megatron sums it only
// where it is gathered over the sequence (down projections replicated, sequence parallelism on).
// Elsewhere nobody does, in any version read so far (Megatron-LM issue 1699, pull request 6839):
// rotary_key_sum says whether that is mended.
#pragma once

#include <memory>

#include "layers/linear/parallel_linear.h"
#include "layers/module.h"
#include "layers/norm/rms_norm.h"
#include "spmd/ops/rope.h"

namespace sumonce {

// How the down projections lie: TELinear "duplicated" of the Transformer Engine layer spec, or the
// ColumnParallelLinear of the local one, whose output is gathered again.
enum class DownProjection : uint8_t { kReplicated, kColumnParallel };

struct LatentAttentionConfig {
  int64_t hidden = 16;
  int64_t num_heads = 4;
  int64_t q_lora_rank = 12;
  int64_t kv_lora_rank = 10;
  int64_t qk_head_dim = 6;          // of the part that is not rotated
  int64_t qk_pos_emb_head_dim = 4;  // of the rotated part; even
  int64_t v_head_dim = 5;
  RopeOptions rope = {.rotary_dim = 4, .interleaved = true};  // rotary_dim: qk_pos_emb_head_dim
  DownProjection down_projection = DownProjection::kReplicated;
  bool standalone_norms = false;  // q_layernorm, kv_layernorm; else fused in the up projections
  bool rotary_key_sum = false;    // the gradient of the rotary key is summed over tp in backward
};

// Modules linear_q_down_proj, linear_kv_down_proj (rows [latent | rotary key]), linear_q_up_proj
// (column, per head [plain | rotary]), linear_kv_up_proj (column, per head [key | value]), with
// standalone norms q_layernorm and kv_layernorm, linear_proj (row). No norm in front: the block's
// input_layernorm stands before it.
class LatentAttention {
 public:
  LatentAttention(const Builder& builder, const LatentAttentionConfig& config);
  Value Forward(Tape& tape, Value x);  // [s(/tp), b, h] -> as x
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  Value DownProjected(Tape& tape, LinearModule& down, Value x);  // [s, b, l], s as `down` leaves it
  Value OwnTokens(Tape& tape, Value gathered);                   // as x lies
  Value Queries(Tape& tape, Value x);                            // [s, b, g, q, d]
  Value RotaryKey(Tape& tape, Value kv);                         // [s, b, d], on all tokens
  Value Rotated(Tape& tape, Value x) const;
  Value Part(Tape& tape, Value projected, int part, const Dims& inner) const;

  std::string name_;
  LatentAttentionConfig config_;
  bool sequence_parallel_;
  std::unique_ptr<LinearModule> q_down_, kv_down_;
  std::unique_ptr<RmsNormLayer> q_layernorm_, kv_layernorm_;
  ColumnParallelLinear q_up_, kv_up_;
  RowParallelLinear linear_proj_;
};

}  // namespace sumonce

// GatedDeltaNet (Yang et al. 2024) as Megatron-Core and mcore-bridge run it under tensor
// parallelism (megatron/core/ssm/gated_delta_net.py; formulas: docs/THEORY.md "GatedDeltaNet").
//
// kUpstream: in_proj gathers the sequence itself (sequence parallelism) or runs on the whole (off).
// kGatherRegion: with sequence parallelism the input is gathered in front of in_proj with a split
// backward, in_proj and out_proj run with their sequence_parallel attribute off for this call, and
// the output is scattered again: mcore-bridge's way. What the region does with the marks of the
// parameters inside decides the second founding case, since the finalizer reads marks long after
// forward has restored the modules.
//
// The replica modes run Hugging Face's whole layer on every rank, its parameters marked
// average_gradients_across_tp_domain (Megatron-Core's HuggingFaceModule). kReplicaScattered: the
// gathered input's gradient is split, the output scattered: gradients are complete.
// kReplicaDivided: the output is reduce-scattered and divided by tp: each rank holds an equal
// share.
#pragma once

#include "layers/gated_delta_net/gather_region.h"
#include "layers/linear/parallel_linear.h"
#include "layers/module.h"
#include "layers/norm/rms_norm.h"

namespace sumonce {

enum class GdnMode : uint8_t { kUpstream, kGatherRegion, kReplicaScattered, kReplicaDivided };
constexpr bool IsReplica(GdnMode mode) { return mode >= GdnMode::kReplicaScattered; }

enum class GdnPacking : uint8_t {
  kMegatron,
  kPerKeyHead
};  // q|k|v|z|b|a by sections, or all six per key head

struct GatedDeltaNetConfig {
  int64_t hidden = 16;
  int64_t num_key_heads = 2;
  int64_t num_value_heads = 4;  // a multiple of num_key_heads
  int64_t key_head_dim = 6;
  int64_t value_head_dim = 5;
  int64_t conv_kernel_dim = 4;
  GdnPacking packing = GdnPacking::kMegatron;
  GdnMode mode = GdnMode::kUpstream;
  RegionMarks region_marks = RegionMarks::kLeaveOff;
  bool decoupled_projections = false;  // in_proj_qkvz and in_proj_ba; with decoupled_norm only
  bool conv_bias = false;
  int64_t chunk_size = 0;       // of the delta rule; 0: token by token
  bool decoupled_norm = false;  // the input norm stands outside, before the gather
  bool shared_norm = false;     // with decoupled_norm: its weight is read again in front of in_proj
};

// What a sequence leaves to its continuation; invalid: nothing came before.
struct GdnCarry {
  Value conv;   // the last inputs of the convolution, [K-1, b, k/tp x (q, k, v)]
  Value state;  // of the delta rule, [b, k/tp, j, e, d]
};

// Modules in_proj (column; or in_proj_qkvz and in_proj_ba), conv1d, out_norm, out_proj (row) and
// the gates' A_log, dt_bias; tp cuts key heads, each with its value heads. decoupled_norm: in_proj
// has no norm of its own, the caller normalises x.
class GatedDeltaNet {
 public:
  GatedDeltaNet(const Builder& builder, const GatedDeltaNetConfig& config);
  // [s(/tp), b, h] -> as x. `carry`, unless null: what came before x, on return what x leaves.
  // Packed sequences begin anew, and carry nothing on but the last one's state.
  Value Forward(Tape& tape, Value x, GdnCarry* carry = nullptr);
  // shared_norm: the layer whose weight is used once more, inside the gather region if there is
  // one: complete there, partial outside, and no action of the finalizer is right for both.
  void ShareNorm(RmsNormLayer* norm) { shared_norm_ = norm; }
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  Value Inner(Tape& tape, Value x, GdnCarry* carry);         // in_proj, heads, out_proj
  Value GatherRegion(Tape& tape, Value x, GdnCarry* carry);  // Inner on the gathered sequence
  Value Replica(Tape& tape, Value x, GdnCarry* carry);
  Value Heads(Tape& tape, Value qkvz, Value ba, GdnCarry* carry);
  Value Mixed(Tape& tape, Value projected, GdnCarry* carry);           // conv and silu: [q | k | v]
  Value Part(Tape& tape, Value x, int part, const Dims& inner) const;  // [s, b, k, inner...]

  std::string name_;
  GatedDeltaNetConfig config_;
  double norm_eps_;
  bool sequence_parallel_;
  std::unique_ptr<LinearModule> in_proj_, in_proj_ba_, out_proj_;
  Param* conv1d_weight_;
  Param* conv1d_bias_ = nullptr;
  Param* A_log_;
  Param* dt_bias_;
  Param* out_norm_weight_;
  RmsNormLayer* shared_norm_ = nullptr;
};

}  // namespace sumonce

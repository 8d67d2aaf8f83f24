// GatedDeltaNet (Yang et al. 2024) as Megatron-Core and mcore-bridge run it under tensor parallelism
// (megatron/core/ssm/gated_delta_net.py; formulas: docs/THEORY.md "GatedDeltaNet").
//
// Three modes. kUpstream: in_proj gathers the sequence itself (sequence parallelism) or runs on the whole (off).
// kGatherRegion: with sequence parallelism the input is gathered in front of in_proj with a split backward, in_proj and
// out_proj run with their sequence_parallel attribute off for this call, and the output is scattered again: mcore-bridge's
// way. What the region does with the marks of the parameters inside decides the second founding case, since the finalizer
// reads marks long after forward has restored the modules.
#pragma once

#include "layers/linear/parallel_linear.h"
#include "layers/module.h"

namespace sumonce {

enum class GdnMode : uint8_t { kUpstream, kGatherRegion };

// What the gather region does with the sequence_parallel mark of its modules' parameters that carry it.
enum class RegionMarks : uint8_t {
  kLeaveOff,           // cleared with the module and left off: right
  kKeep,               // only the module is toggled: the mark stays, the complete gradient is summed again (times tp)
  kToggleAndRestore,   // cleared for the call and restored with the module: marks are read after backward, still times tp
};

enum class GdnPacking : uint8_t { kMegatron, kPerKeyHead };  // q|k|v|z|b|a by sections, or all six per key head

struct GatedDeltaNetConfig {
  int64_t hidden = 16;
  int64_t num_key_heads = 2;
  int64_t num_value_heads = 4;   // a multiple of num_key_heads
  int64_t key_head_dim = 6;
  int64_t value_head_dim = 5;
  int64_t conv_kernel_dim = 4;
  GdnPacking packing = GdnPacking::kMegatron;
  GdnMode mode = GdnMode::kUpstream;
  RegionMarks region_marks = RegionMarks::kLeaveOff;
  bool decoupled_norm = false;   // the input norm stands outside, before the gather
};

class GatedDeltaNet {
 public:
  GatedDeltaNet(const Builder& builder, const GatedDeltaNetConfig& config);
  Value Forward(Tape& tape, Value x);   // [s(/tp), b, h] -> [s(/tp), b, h]
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  Value Inner(Tape& tape, Value x);     // in_proj, conv, rule, gated norm, out_proj

  std::string name_;
  GatedDeltaNetConfig config_;
  double norm_eps_;
  bool sequence_parallel_;
  std::unique_ptr<ColumnParallelLinear> in_proj_;
  std::unique_ptr<RowParallelLinear> out_proj_;
  Param* conv1d_weight_;
  Param* A_log_;
  Param* dt_bias_;
  Param* out_norm_weight_;
};

}  // namespace sumonce

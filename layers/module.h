// What layers share: the configuration that a framework passes to all of them, the parameters they
// own, and the module attributes that may be toggled for one call.
//
// Layer code sees no rank and no size. Each rank (and the prover) builds its own modules from the
// same configuration: marks and module attributes are per rank, as in a real job.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "spmd/tape.h"

namespace sumonce {

enum class NormKind : uint8_t { kPlain, kZeroCentered };  // w, or 1 + w: zero_centered_gamma

struct LoraConfig {
  bool enabled = false;
  int64_t r = 8;
  double scaling = 2.0;  // lora_alpha / r, or / sqrt(r) (rsLoRA)
  double dropout = 0;    // of the adapter's input
  bool bias = false;     // a bias behind lora_B, as PEFT's lora_bias
  bool freeze_A = false, freeze_B = false;
  std::vector<std::string> targets;  // "linear_qkv", "in_proj", ..., or a glob over the whole path
  bool zero_init_B = true;
  // One adapter per sub-projection, in their block-diagonal form: a fused target's factors have the
  // rank r times its sub-projections (linear_qkv q, k, v; in_proj qkv, z, b, a; linear_fc1 gate,
  // up).
  bool separate_adapters = false;
  // One adapter per sub-projection, with parameters of its own: linear_qkv.q_proj.lora_A.
  bool per_sub_projection = false;

  int64_t RankOf(std::string_view module_path) const;

  // Whether the module of this path gets an adapter: a target is its last component or matches the
  // path.
  bool Targets(std::string_view module_path) const;
};

struct LayerConfig {
  bool sequence_parallel = false;  // already false at tp 1
  NormKind norm = NormKind::kPlain;
  double norm_eps = 1e-6;
  double init_std = 0.05;  // of weight matrices
  LoraConfig lora;
  bool train_base = false;  // base weights have gradients (always so without LoRA)
};

// Owns the parameters of one rank's model, in the order of their creation (the order of
// named_parameters()).
class ParamStore {
 public:
  Param& Create(Param param);  // the name must be new: our own fault otherwise
  std::deque<Param>& all() { return params_; }
  const std::deque<Param>& all() const { return params_; }
  Param* Find(std::string_view name);  // null if there is none

 private:
  std::deque<Param> params_;  // stable addresses
};

// A module whose sequence_parallel attribute is read again at every forward (Transformer Engine's
// linears).
struct ToggleableModule {
  std::string path;
  bool* sequence_parallel = nullptr;
  std::vector<Param*> params;  // its own, whose marks a region may toggle with it
};

// Passed to constructors: where the module stands in the model and what it may create. Used during
// construction only; both references outlive it.
class Builder {
 public:
  Builder(const LayerConfig& config, ParamStore& params) : config_(&config), params_(&params) {}

  Builder Child(std::string_view name) const;  // one level deeper
  const std::string& path() const { return path_; }
  std::string_view name() const { return name_; }  // as given to Child: what Tape::Scope enters
  const LayerConfig& config() const { return *config_; }

  // Creates path().name with these shards. Base parameters are frozen under LoRA unless train_base.
  Param& Create(std::string_view name, ShardMap shards, Init init, Marks marks = {}) const;
  Param& CreateTrainable(std::string_view name, ShardMap shards, Init init, Marks marks = {}) const;

 private:
  const LayerConfig* config_;
  ParamStore* params_;
  std::string path_;
  std::string name_;
};

// The marks that Megatron's constructors write.
Marks ShardedMarks(int partition_dim);                   // tensor_model_parallel
Marks SequenceParallelMarks(const LayerConfig& config);  // TENorm, a row-parallel bias

// The weight of a norm starts at 1, zero-centred at 0.
Init NormInit(NormKind norm);

}  // namespace sumonce

// Tensor-parallel linear layers as Transformer Engine and Megatron-Core build them (spec:
// docs/THEORY.md "Layers"; megatron/core/tensor_parallel/layers.py,
// transformer_engine/pytorch/module/{linear,layernorm_linear}.py).
//
// The module attribute sequence_parallel is read at every Forward: toggling it changes the
// communication of that call, not the marks on the parameters. Weights are [out..., in...]; y = x
// W^T.
#pragma once

#include <optional>

#include "layers/lora/lora.h"
#include "layers/module.h"
#include "layers/norm/rms_norm.h"

namespace sumonce {

// Adjacent parts of a fused output that other code bases keep as a projection of its own.
struct SubOutput {
  const char* name;  // "q_proj"
  int first, count;  // parts of the first output dimension's units
};

struct LinearConfig {
  Dims out;               // unsharded output dimensions, e.g. [g] packed
  Dims in;                // unsharded input dimensions, e.g. [h]
  Dim cut = Dim::kGroup;  // the dimension that tp cuts: one of `out` (column) or of `in` (row)
  std::vector<ShardMap::Cut> cuts = {};  // instead of `cut`, where parts of tp cut several of them
  bool bias = false;
  bool layer_norm = false;  // column only: RMSNorm fused in front (LayerNormColumnParallelLinear)
  // Else cut as ever, but parallel_mode None: x is taken and y left as they are, and an adapter's
  // factors do likewise (a shared expert under overlap).
  bool communicates = true;
  std::vector<SubOutput> subs = {};  // of `out`, in order and without gaps; none: it is not fused
};

// The adapters of one linear: one on the whole of it, or with lora.per_sub_projection one for each
// of its sub-projections, named path().q_proj.lora_A and so on.
class Adapters {
 public:
  Adapters() = default;
  // `replicated`: the marks of a replicated factor. None, if the configuration does not target it.
  Adapters(const Builder& builder, const LinearConfig& config, LoraAdapter::Target target,
           const Marks& replicated);
  Value AddTo(Tape& tape, Value y, Value x);  // y and what they make of x
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  struct Adapter {
    std::string name;  // of the sub-projection; "": of the whole
    int first = 0;
    std::unique_ptr<LoraAdapter> lora;
  };
  std::vector<Adapter> adapters_;
  DimExtent fused_;
};

// How tp cuts a linear of this configuration: `cuts`, or `cut` over the whole of tp.
std::vector<ShardMap::Cut> CutsOf(const LinearConfig& config);

// What a layer that chooses between the linears below holds.
class LinearModule {
 public:
  virtual ~LinearModule() = default;
  virtual Value Forward(Tape& tape, Value x) = 0;
  virtual void CollectModules(std::vector<ToggleableModule>& modules) = 0;
};

// W split by rows of the output over tp. With sequence parallelism x is [s/tp, b, in] and is
// gathered, its dgrad reduce-scattered; without, x is whole and its dgrad all-reduced.
class ColumnParallelLinear : public LinearModule {
 public:
  ColumnParallelLinear(const Builder& builder, const LinearConfig& config);
  // x: [s(/tp), b, in...] -> [s, b, out.../tp]
  Value Forward(Tape& tape, Value x) override;
  void CollectModules(std::vector<ToggleableModule>& modules) override;

 private:
  std::string name_;
  std::string path_;
  RmsNormOptions norm_;
  bool sequence_parallel_;
  bool communicates_;
  Param* weight_;
  Param* bias_ = nullptr;
  Param* layer_norm_weight_ = nullptr;
  Adapters adapters_;
};

// W whole on every rank, no communication: Transformer Engine's parallel_mode "duplicated" (the
// down projections of multi-latent attention), marked sequence_parallel with the configuration,
// since it reads the rank's own tokens then; or a plain linear of a module that every rank runs
// whole.
class ReplicatedLinear : public LinearModule {
 public:
  // `config.cut` is not looked at. `marks`: of the weight, and of an adapter's factors.
  ReplicatedLinear(const Builder& builder, const LinearConfig& config, const Marks& marks);
  Value Forward(Tape& tape, Value x) override;  // x: [..., in...] -> [..., out...]
  void CollectModules(std::vector<ToggleableModule>& modules) override;  // an adapter's factors

 private:
  std::string name_;
  Param* weight_;
  Adapters adapters_;
};

// W split by columns of the input over tp. The output is summed: reduce-scattered over s with
// sequence parallelism, all-reduced without. The bias is added behind the sum and is marked
// sequence_parallel.
class RowParallelLinear : public LinearModule {
 public:
  RowParallelLinear(const Builder& builder, const LinearConfig& config);
  // x: [s, b, in.../tp] -> [s(/tp), b, out...]
  Value Forward(Tape& tape, Value x) override;
  void CollectModules(std::vector<ToggleableModule>& modules) override;

 private:
  std::string name_;
  std::string path_;
  bool sequence_parallel_;
  bool communicates_;
  Param* weight_;
  Param* bias_ = nullptr;
  Adapters adapters_;
};

}  // namespace sumonce

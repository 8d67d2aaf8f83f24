// LoRA on a parallel linear layer: y = base(x) + scaling * B(A(x)) (Hu et al. 2021; sharding as
// mcore-bridge's LoraParallelLinear). On a column target A is replicated and B split by rows; on a
// row target A is split by columns and B replicated; on a replicated target both are. The
// replicated factor's parameter is marked sequence_parallel when sequence parallelism is on:
// without that mark nobody sums its gradient over tp (the first founding case).
//
// Dropout acts on the adapter's input with a mask drawn by global index, so that a rank's mask is a
// slice of the unsharded one; frameworks draw by rank and agree only in distribution.
#pragma once

#include "layers/module.h"

namespace sumonce {

class LoraAdapter {
 public:
  enum class Target : uint8_t { kColumn, kRow, kReplicated };

  // What the adapter takes over from its base layer.
  struct Shape {
    Target target = Target::kColumn;
    Dims out, in;                     // unsharded
    std::vector<ShardMap::Cut> cuts;  // how tp cuts one of them
    bool communicates = true;
  };
  // `replicated`: the marks of a replicated factor.
  LoraAdapter(const Builder& builder, const Shape& shape, const Marks& replicated);

  // x as the base layer gets it (for a fused norm: the norm's output, not gathered); the result has
  // the dimensions and the placement of the base layer's output.
  Value Forward(Tape& tape, Value x);
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  Value Dropped(Tape& tape, Value x);
  Value ForwardA(Tape& tape, Value x);
  Value ForwardB(Tape& tape, Value a);

  Target target_;
  bool communicates_;
  double scaling_;
  double dropout_;
  ShardMap input_;                // of x but for its tokens
  std::string path_;              // of the base layer
  bool sequence_parallel_A_;      // attributes of the two factors, each a module of its own; the
  bool sequence_parallel_B_;      // replicated one never communicates
  Param* lora_A_;                 // [r, in...]
  Param* lora_B_;                 // [out..., r]
  Param* lora_B_bias_ = nullptr;  // [out...]
};

}  // namespace sumonce

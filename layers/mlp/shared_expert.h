// The shared expert of a mixture-of-experts layer: an MLP that every token takes
// (megatron/core/transformer/moe/shared_experts.py). Without overlap its linears communicate as any
// MLP's. With moe_shared_expert_overlap they do not: the layer gathers its tokens in front and sums
// behind, so that what it does in between can run beside the dispatcher; an adapter's replicated
// factors then hold their rank's own features' terms, not own tokens'.
#pragma once

#include "layers/mlp/mlp.h"

namespace sumonce {

struct SharedExpertConfig {
  MlpConfig mlp;  // no norm of its own: pre_mlp_layernorm stands in front of the layer
  bool overlap = false;
  bool gate = false;  // the output times sigmoid(x gate_weight), on the rank's own tokens
};

// Modules linear_fc1, linear_fc2 and the parameter gate_weight [h].
class SharedExpert {
 public:
  SharedExpert(const Builder& builder, const SharedExpertConfig& config);
  Value Forward(Tape& tape, Value x);  // [s(/tp), b, h] -> as x
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  std::string name_;
  bool overlap_;
  bool sequence_parallel_;
  MlpLinears mlp_;
  Param* gate_weight_ = nullptr;
};

}  // namespace sumonce

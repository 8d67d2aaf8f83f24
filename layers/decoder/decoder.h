// The hybrid decoder: embedding, blocks (mixer and MLP, each with a residual), final norm, output layer and loss.
#pragma once

#include <memory>
#include <variant>

#include "layers/attention/self_attention.h"
#include "layers/embedding/vocab_parallel.h"
#include "layers/gated_delta_net/gated_delta_net.h"
#include "layers/mlp/mlp.h"
#include "layers/module.h"

namespace sumonce {

struct DecoderLayerConfig {
  std::variant<SelfAttentionConfig, GatedDeltaNetConfig> mixer;
  std::optional<MlpConfig> mlp;         // none: the block is the mixer alone
};

struct ModelConfig {
  int64_t vocab = 24;
  int64_t hidden = 16;
  std::vector<DecoderLayerConfig> layers;
  LayerConfig common;
};

// The inputs of one microbatch; whole tensors, [s, b] unless said. `one_hot` and `target_one_hot`: [s, b, v].
struct BatchInputs {
  const Tensor* tokens_one_hot = nullptr;
  const Tensor* targets_one_hot = nullptr;
  const Tensor* loss_weights = nullptr;  // the token's weight in the loss: mask, or mask / counted tokens
  int64_t sequence = 0, batch = 0;       // unsharded extents; batch over all dp ranks
};

class Model {
 public:
  explicit Model(const ModelConfig& config);

  // The loss of one microbatch (scalar): P over dp (each rank its own sequences), E over tp.
  // `loss_scale`: a monomial that multiplies it (mean-of-cells mode seeds dp/N; docs/THEORY.md "Loss").
  Value Forward(Tape& tape, const BatchInputs& inputs, const Scale& loss_scale);

  ParamStore& params() { return params_; }
  std::vector<ToggleableModule> modules();

 private:
  ModelConfig config_;
  ParamStore params_;
  // ...
};

}  // namespace sumonce

// One block of the hybrid decoder: a mixer and an MLP, each with a residual.
#pragma once

#include <memory>
#include <optional>
#include <variant>

#include "layers/attention/latent_attention.h"
#include "layers/attention/self_attention.h"
#include "layers/gated_delta_net/gated_delta_net.h"
#include "layers/mlp/mlp.h"
#include "layers/mlp/shared_expert.h"
#include "layers/module.h"
#include "layers/norm/rms_norm.h"

namespace sumonce {

struct DecoderLayerConfig {
  // monostate: no mixer, the block is the MLP alone.
  std::variant<SelfAttentionConfig, GatedDeltaNetConfig, LatentAttentionConfig, std::monostate>
      mixer;
  std::optional<MlpConfig> mlp;  // none: the block is the mixer alone
  // Norms of their own in front of the mixer and the MLP, on the tokens as they lie; those have
  // none fused then.
  bool input_layernorm = false;
  bool pre_mlp_layernorm = false;
  // Instead of an MLP: a mixture of experts' shared one (of its experts only this), behind
  // pre_mlp_layernorm.
  std::optional<SharedExpertConfig> shared_expert;
};

// x1 = x + mixer(x), y = x1 + mlp(x1); the norms are fused in the column-parallel linears, but
// where input_layernorm and pre_mlp_layernorm stand (the former also for a GatedDeltaNet with
// decoupled_norm, and always for multi-latent attention). Any mixer is called self_attention, as in
// Megatron's checkpoints.
class DecoderLayer {
 public:
  DecoderLayer(const Builder& builder, const DecoderLayerConfig& config);
  Value Forward(Tape& tape, Value x);  // [s(/tp), b, h] -> as x
  void CollectModules(std::vector<ToggleableModule>& modules);

 private:
  Value Mixed(Tape& tape, Value x);
  Value MlpOf(Tape& tape, Value x);
  Value SharedExperts(Tape& tape, Value x);

  std::string name_;
  std::unique_ptr<RmsNormLayer> input_layernorm_;
  std::unique_ptr<SelfAttention> attention_;
  std::unique_ptr<GatedDeltaNet> gated_delta_net_;
  std::unique_ptr<LatentAttention> latent_attention_;
  std::unique_ptr<RmsNormLayer> pre_mlp_layernorm_;
  std::unique_ptr<Mlp> mlp_;
  std::unique_ptr<SharedExpert> shared_expert_;
};

}  // namespace sumonce

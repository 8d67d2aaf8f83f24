#include "layers/decoder/decoder_layer.h"

#include "spmd/ops/add.h"

namespace sumonce {

namespace {

int64_t HiddenOf(const DecoderLayerConfig& config) {
  if (const auto* attention = std::get_if<SelfAttentionConfig>(&config.mixer))
    return attention->hidden;
  if (const auto* gdn = std::get_if<GatedDeltaNetConfig>(&config.mixer)) return gdn->hidden;
  if (const auto* latent = std::get_if<LatentAttentionConfig>(&config.mixer)) return latent->hidden;
  return config.mlp ? config.mlp->hidden : 0;
}

}  // namespace

DecoderLayer::DecoderLayer(const Builder& builder, const DecoderLayerConfig& config)
    : name_(builder.name()) {
  const Builder mixer = builder.Child("self_attention");
  const auto* gdn = std::get_if<GatedDeltaNetConfig>(&config.mixer);
  const auto* latent = std::get_if<LatentAttentionConfig>(&config.mixer);
  if (config.input_layernorm || latent || (gdn && gdn->decoupled_norm)) {
    input_layernorm_ =
        std::make_unique<RmsNormLayer>(builder.Child("input_layernorm"), HiddenOf(config));
  }
  if (const auto* attention = std::get_if<SelfAttentionConfig>(&config.mixer)) {
    if (attention->regime == KvRegime::kCopies && attention->layer_norm) {
      input_layernorm_ =
          std::make_unique<RmsNormLayer>(builder.Child("input_layernorm"), attention->hidden);
    }
    attention_ = std::make_unique<SelfAttention>(mixer, *attention);
  } else if (gdn) {
    gated_delta_net_ = std::make_unique<GatedDeltaNet>(mixer, *gdn);
    if (gdn->shared_norm) gated_delta_net_->ShareNorm(input_layernorm_.get());
  } else if (latent) {
    latent_attention_ = std::make_unique<LatentAttention>(mixer, *latent);
  }
  if ((config.pre_mlp_layernorm && config.mlp) || config.shared_expert) {
    const int64_t hidden = config.mlp ? config.mlp->hidden : config.shared_expert->mlp.hidden;
    pre_mlp_layernorm_ = std::make_unique<RmsNormLayer>(builder.Child("pre_mlp_layernorm"), hidden);
  }
  if (config.mlp) mlp_ = std::make_unique<Mlp>(builder.Child("mlp"), *config.mlp);
  if (config.shared_expert) {
    shared_expert_ = std::make_unique<SharedExpert>(builder.Child("mlp").Child("shared_experts"),
                                                    *config.shared_expert);
  }
}

Value DecoderLayer::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  if (attention_ || gated_delta_net_ || latent_attention_) x = Add(tape, x, Mixed(tape, x));
  if (mlp_) x = Add(tape, x, MlpOf(tape, x));
  if (shared_expert_) x = Add(tape, x, SharedExperts(tape, x));
  return x;
}

Value DecoderLayer::Mixed(Tape& tape, Value x) {
  if (input_layernorm_) x = input_layernorm_->Forward(tape, x);
  if (attention_) return attention_->Forward(tape, x);
  return latent_attention_ ? latent_attention_->Forward(tape, x)
                           : gated_delta_net_->Forward(tape, x);
}

Value DecoderLayer::MlpOf(Tape& tape, Value x) {
  if (pre_mlp_layernorm_) x = pre_mlp_layernorm_->Forward(tape, x);
  return mlp_->Forward(tape, x);
}

Value DecoderLayer::SharedExperts(Tape& tape, Value x) {
  x = pre_mlp_layernorm_->Forward(tape, x);
  Tape::Scope scope(tape, "mlp");
  return shared_expert_->Forward(tape, x);
}

void DecoderLayer::CollectModules(std::vector<ToggleableModule>& modules) {
  if (attention_) attention_->CollectModules(modules);
  if (gated_delta_net_) gated_delta_net_->CollectModules(modules);
  if (latent_attention_) latent_attention_->CollectModules(modules);
  if (mlp_) mlp_->CollectModules(modules);
  if (shared_expert_) shared_expert_->CollectModules(modules);
}

}  // namespace sumonce

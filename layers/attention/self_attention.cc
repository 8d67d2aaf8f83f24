#include "layers/attention/self_attention.h"

#include "spmd/ops/attention.h"
#include "spmd/ops/sigmoid_gate.h"
#include "spmd/ops/take_parts.h"
#include "spmd/ops/unfold.h"

namespace sumonce {
namespace {

DimExtent HeadDim(const SelfAttentionConfig& config) {
  return Plain(Dim::kHeadDim, config.head_dim);
}

Dims QueryHeads(const SelfAttentionConfig& config) {
  return {Plain(Dim::kHeadInGroup, config.heads_per_group), HeadDim(config)};
}

// One unit per group: [q heads, (gate heads,) k, v].
DimExtent QkvDim(const SelfAttentionConfig& config) {
  const int64_t q = config.heads_per_group * config.head_dim;
  DimExtent g = {.dim = Dim::kGroup, .units = config.num_query_groups, .parts = {q}};
  if (config.output_gate) g.parts.push_back(q);
  g.parts.insert(g.parts.end(), {config.head_dim, config.head_dim});
  return g;
}

LinearConfig Qkv(const SelfAttentionConfig& config) {
  return {.out = {QkvDim(config)},
          .in = {Plain(Dim::kHidden, config.hidden)},
          .cut = Dim::kGroup,
          .bias = config.bias,
          .layer_norm = config.layer_norm};
}

LinearConfig Proj(const SelfAttentionConfig& config) {
  Dims in = {Plain(Dim::kGroup, config.num_query_groups)};
  for (const DimExtent& dim : QueryHeads(config)) in.push_back(dim);
  return {.out = {Plain(Dim::kHidden, config.hidden)},
          .in = in,
          .cut = Dim::kGroup,
          .bias = config.bias};
}

// Not marked, though every head's rank holds a term of the gradient: the finalizer takes them by
// their names (megatron/core/distributed/finalize_model_grads.py).
std::unique_ptr<RmsNormLayer> QkNorm(const Builder& builder, std::string_view name,
                                     const SelfAttentionConfig& config) {
  if (!config.qk_layernorm) return nullptr;
  return std::make_unique<RmsNormLayer>(builder.Child(name), HeadDim(config), Marks());
}

}  // namespace

SelfAttention::SelfAttention(const Builder& builder, const SelfAttentionConfig& config)
    : name_(builder.name()),
      config_(config),
      linear_qkv_(builder.Child("linear_qkv"), Qkv(config)),
      linear_proj_(builder.Child("linear_proj"), Proj(config)),
      q_layernorm_(QkNorm(builder, "q_layernorm", config)),
      k_layernorm_(QkNorm(builder, "k_layernorm", config)) {}

Value SelfAttention::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  const Value qkv = linear_qkv_.Forward(tape, x);
  const int key = config_.output_gate ? 2 : 1;
  const Value q = Rotated(tape, Heads(tape, qkv, 0, /*query=*/true), q_layernorm_);
  const Value k = Rotated(tape, Heads(tape, qkv, key, /*query=*/false), k_layernorm_);
  const Value v = Heads(tape, qkv, key + 1, /*query=*/false);
  Value context = CoreAttention(tape, q, k, v);
  if (config_.output_gate) {
    context = SigmoidGate(tape, context, Heads(tape, qkv, 1, /*query=*/true));
  }
  return linear_proj_.Forward(tape, context);
}

Value SelfAttention::Heads(Tape& tape, Value qkv, int part, bool query) {
  const Value heads = TakeParts(tape, qkv, {.dim = Dim::kGroup, .first = part});
  const Dims inner = query ? QueryHeads(config_) : Dims{HeadDim(config_)};
  return Unfold(tape, heads, {.dim = Dim::kGroup, .inner = inner});
}

Value SelfAttention::Rotated(Tape& tape, Value x, std::unique_ptr<RmsNormLayer>& norm) {
  if (norm) x = norm->Forward(tape, x);
  return config_.rope.rotary_dim > 0 ? Rope(tape, x, config_.rope) : x;
}

void SelfAttention::CollectModules(std::vector<ToggleableModule>& modules) {
  linear_qkv_.CollectModules(modules);
  linear_proj_.CollectModules(modules);
}

}  // namespace sumonce

#include "layers/attention/latent_attention.h"

#include "spmd/collectives.h"
#include "spmd/ops/attention.h"
#include "spmd/ops/concat.h"
#include "spmd/ops/take_parts.h"
#include "spmd/ops/take_range.h"
#include "spmd/ops/unfold.h"

namespace sumonce {
namespace {

DimExtent Heads(const LatentAttentionConfig& config, std::initializer_list<int64_t> parts) {
  return {.dim = Dim::kGroup, .units = config.num_heads, .parts = parts};
}
Dims OneQuery(int64_t entries) {
  return {Plain(Dim::kHeadInGroup, 1), Plain(Dim::kHeadDim, entries)};
}

LinearConfig QueryUp(const LatentAttentionConfig& config) {
  return {.out = {Heads(config, {config.qk_head_dim, config.qk_pos_emb_head_dim})},
          .in = {Plain(Dim::kLatent, config.q_lora_rank)},
          .cut = Dim::kGroup,
          .layer_norm = !config.standalone_norms};
}

LinearConfig KeyValueUp(const LatentAttentionConfig& config) {
  return {.out = {Heads(config, {config.qk_head_dim, config.v_head_dim})},
          .in = {Plain(Dim::kLatent, config.kv_lora_rank)},
          .cut = Dim::kGroup,
          .layer_norm = !config.standalone_norms};
}

LinearConfig LatentProj(const LatentAttentionConfig& config) {
  Dims in = {Plain(Dim::kGroup, config.num_heads)};
  for (const DimExtent& dim : OneQuery(config.v_head_dim)) in.push_back(dim);
  return {.out = {Plain(Dim::kHidden, config.hidden)}, .in = in, .cut = Dim::kGroup};
}

std::unique_ptr<RmsNormLayer> LatentNorm(const Builder& builder, std::string_view name, bool built,
                                         int64_t entries) {
  if (!built) return nullptr;
  return std::make_unique<RmsNormLayer>(builder.Child(name), Plain(Dim::kLatent, entries),
                                        SequenceParallelMarks(builder.config()));
}

std::unique_ptr<LinearModule> DownProj(const Builder& builder, const LatentAttentionConfig& config,
                                       int64_t rows) {
  const LinearConfig linear = {.out = {Plain(Dim::kLatent, rows)},
                               .in = {Plain(Dim::kHidden, config.hidden)},
                               .cut = Dim::kLatent};
  if (config.down_projection == DownProjection::kColumnParallel)
    return std::make_unique<ColumnParallelLinear>(builder, linear);
  return std::make_unique<ReplicatedLinear>(builder, linear,
                                            SequenceParallelMarks(builder.config()));
}

}  // namespace

LatentAttention::LatentAttention(const Builder& builder, const LatentAttentionConfig& config)
    : name_(builder.name()),
      config_(config),
      sequence_parallel_(builder.config().sequence_parallel),
      q_down_(DownProj(builder.Child("linear_q_down_proj"), config, config.q_lora_rank)),
      kv_down_(DownProj(builder.Child("linear_kv_down_proj"), config,
                        config.kv_lora_rank + config.qk_pos_emb_head_dim)),
      q_layernorm_(LatentNorm(builder, "q_layernorm", config.standalone_norms, config.q_lora_rank)),
      kv_layernorm_(
          LatentNorm(builder, "kv_layernorm", config.standalone_norms, config.kv_lora_rank)),
      q_up_(builder.Child("linear_q_up_proj"), QueryUp(config)),
      kv_up_(builder.Child("linear_kv_up_proj"), KeyValueUp(config)),
      linear_proj_(builder.Child("linear_proj"), LatentProj(config)) {}

Value LatentAttention::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  const Value q = Queries(tape, x);
  const Value kv = DownProjected(tape, *kv_down_, x);
  Value latent = TakeRange(tape, kv, {.dim = Dim::kLatent, .count = config_.kv_lora_rank});
  if (config_.down_projection == DownProjection::kColumnParallel) latent = OwnTokens(tape, latent);
  if (kv_layernorm_) latent = kv_layernorm_->Forward(tape, latent);
  const Value heads = kv_up_.Forward(tape, latent);
  const Value plain = Part(tape, heads, 0, {Plain(Dim::kHeadDim, config_.qk_head_dim)});
  const Value v = Part(tape, heads, 1, {Plain(Dim::kHeadDim, config_.v_head_dim)});
  const Value k = Concat(tape, plain, Rotated(tape, RotaryKey(tape, kv)), Dim::kHeadDim);
  return linear_proj_.Forward(tape, CoreAttention(tape, q, k, v, tape.pass.sequence_starts));
}

// A column-parallel projection's output is gathered whole again; in backward each rank takes its
// own part, as if the gradient were complete on every one
// (gather_from_tensor_model_parallel_region).
Value LatentAttention::DownProjected(Tape& tape, LinearModule& down, Value x) {
  const Value latent = down.Forward(tape, x);
  if (config_.down_projection == DownProjection::kReplicated) return latent;
  return AllGather(tape, latent, Axis::kTp, Dim::kLatent, GatherGrad::kSplit);
}

Value LatentAttention::OwnTokens(Tape& tape, Value gathered) {
  return sequence_parallel_ ? ScatterToRegion(tape, gathered, Axis::kTp, Dim::kSequence) : gathered;
}

Value LatentAttention::Queries(Tape& tape, Value x) {
  Value latent = DownProjected(tape, *q_down_, x);
  if (config_.down_projection == DownProjection::kColumnParallel) latent = OwnTokens(tape, latent);
  if (q_layernorm_) latent = q_layernorm_->Forward(tape, latent);
  const Value heads = q_up_.Forward(tape, latent);
  const Value plain = Part(tape, heads, 0, OneQuery(config_.qk_head_dim));
  const Value rotary = Part(tape, heads, 1, OneQuery(config_.qk_pos_emb_head_dim));
  return Concat(tape, plain, Rotated(tape, rotary), Dim::kHeadDim);
}

Value LatentAttention::Rotated(Tape& tape, Value x) const {
  RopeOptions rope = config_.rope;
  rope.starts = tape.pass.sequence_starts;
  return Rope(tape, x, std::move(rope));
}

// One key for all heads. Where it is not gathered over the sequence, what enters the heads' region
// is a copy whose gradient has to be summed; Megatron hands it on as it is.
Value LatentAttention::RotaryKey(Tape& tape, Value kv) {
  Tape::Scope scope(tape, "k_pos_emb");
  const Value key = TakeRange(tape, kv,
                              {.dim = Dim::kLatent,
                               .first = config_.kv_lora_rank,
                               .count = config_.qk_pos_emb_head_dim,
                               .as = Dim::kHeadDim});
  if (sequence_parallel_ && config_.down_projection == DownProjection::kReplicated)
    return AllGather(tape, key, Axis::kTp, Dim::kSequence, GatherGrad::kReduceScatter);
  return tape.Communicate(
      {.name = "Copy",
       .group = tape.GroupOf(Axis::kTp),
       .forward = {},
       .backward = {.map = config_.rotary_key_sum ? Map::kSum : Map::kIdentity}},
      key);
}

Value LatentAttention::Part(Tape& tape, Value projected, int part, const Dims& inner) const {
  const Value heads = TakeParts(tape, projected, {.dim = Dim::kGroup, .first = part});
  return Unfold(tape, heads, {.dim = Dim::kGroup, .inner = inner});
}

void LatentAttention::CollectModules(std::vector<ToggleableModule>& modules) {
  q_down_->CollectModules(modules);
  kv_down_->CollectModules(modules);
  q_up_.CollectModules(modules);
  kv_up_.CollectModules(modules);
  linear_proj_.CollectModules(modules);
}

}  // namespace sumonce

#include "layers/attention/self_attention.h"

#include "spmd/collectives.h"
#include "spmd/ops/attention.h"
#include "spmd/ops/regroup.h"
#include "spmd/ops/sigmoid_gate.h"
#include "spmd/ops/take_parts.h"
#include "spmd/ops/take_range.h"
#include "spmd/ops/unfold.h"

namespace sumonce {
namespace {

DimExtent HeadDim(const SelfAttentionConfig& config) {
  return Plain(Dim::kHeadDim, config.head_dim);
}

Dims QueryHeads(const SelfAttentionConfig& config) {
  return {Plain(Dim::kHeadInGroup, config.heads_per_group), HeadDim(config)};
}

int64_t QueryParts(const SelfAttentionConfig& config) { return config.output_gate ? 2 : 1; }

// One unit per group: [q heads, (gate heads,) k, v], of which the parts of queries, of keys or all.
DimExtent QkvDim(const SelfAttentionConfig& config, bool queries, bool keys) {
  DimExtent g = {.dim = Dim::kGroup, .units = config.num_query_groups, .parts = {}};
  if (queries) g.parts.assign(QueryParts(config), config.heads_per_group * config.head_dim);
  if (keys) g.parts.insert(g.parts.end(), {config.head_dim, config.head_dim});
  return g;
}

// Ranks that share a group cut its queries.
std::vector<ShardMap::Cut> CutsOfQueries(const SelfAttentionConfig& config) {
  if (config.regime == KvRegime::kCut) return {{Dim::kGroup, Axis::kTp}};
  return {{Dim::kGroup, Axis::kKv}, {Dim::kHeadInGroup, Axis::kKvCopy}};
}

std::vector<SubOutput> SubsOf(const SelfAttentionConfig& config, bool queries) {
  const int key = queries ? static_cast<int>(QueryParts(config)) : 0;
  std::vector<SubOutput> subs = {{"k_proj", key, 1}, {"v_proj", key + 1, 1}};
  if (queries) subs.insert(subs.begin(), {"q_proj", 0, key});
  return subs;
}

LinearConfig Qkv(const SelfAttentionConfig& config) {
  const DimExtent fused = QkvDim(config, true, true);
  const bool slices = config.regime == KvRegime::kSlices;
  return {.out = {slices ? Plain(Dim::kOut, fused.extent()) : fused},
          .in = {Plain(Dim::kHidden, config.hidden)},
          .cut = slices ? Dim::kOut : Dim::kGroup,
          .bias = config.bias,
          .layer_norm = config.layer_norm,
          .subs = slices ? std::vector<SubOutput>() : SubsOf(config, true)};
}

// kCopies. The gate's heads are as many as the queries': [g, q, d] is [g, q, (q and gate)].
LinearConfig QueryProj(const SelfAttentionConfig& config) {
  DimExtent entries = HeadDim(config);
  entries.units *= QueryParts(config);
  return {.out = {Plain(Dim::kGroup, config.num_query_groups),
                  Plain(Dim::kHeadInGroup, config.heads_per_group), entries},
          .in = {Plain(Dim::kHidden, config.hidden)},
          .cuts = CutsOfQueries(config),
          .bias = config.bias};
}

LinearConfig KeyValueProj(const SelfAttentionConfig& config) {
  return {.out = {QkvDim(config, false, true)},
          .in = {Plain(Dim::kHidden, config.hidden)},
          .cuts = {{Dim::kGroup, Axis::kKv}},
          .bias = config.bias,
          .subs = SubsOf(config, false)};
}

LinearConfig Proj(const SelfAttentionConfig& config) {
  Dims in = {Plain(Dim::kGroup, config.num_query_groups)};
  for (const DimExtent& dim : QueryHeads(config)) in.push_back(dim);
  return {.out = {Plain(Dim::kHidden, config.hidden)},
          .in = in,
          .cuts = CutsOfQueries(config),
          .bias = config.bias};
}

// Not marked, though every head's rank holds a term of the gradient: the finalizer takes them by
// their names (megatron/core/distributed/finalize_model_grads.py).
std::unique_ptr<RmsNormLayer> QkNorm(const Builder& builder, std::string_view name,
                                     const SelfAttentionConfig& config) {
  if (!config.qk_layernorm) return nullptr;
  return std::make_unique<RmsNormLayer>(builder.Child(name), HeadDim(config), Marks());
}

bool Copies(const SelfAttentionConfig& config) { return config.regime == KvRegime::kCopies; }

std::unique_ptr<ColumnParallelLinear> Column(const Builder& builder, const LinearConfig& config,
                                             bool built) {
  return built ? std::make_unique<ColumnParallelLinear>(builder, config) : nullptr;
}

}  // namespace

SelfAttention::SelfAttention(const Builder& builder, const SelfAttentionConfig& config)
    : name_(builder.name()),
      config_(config),
      linear_qkv_(Column(builder.Child("linear_qkv"), Qkv(config), !Copies(config))),
      linear_q_(Column(builder.Child("linear_q"), QueryProj(config), Copies(config))),
      linear_kv_(Column(builder.Child("linear_kv"), KeyValueProj(config), Copies(config))),
      linear_proj_(builder.Child("linear_proj"), Proj(config)),
      q_layernorm_(QkNorm(builder, "q_layernorm", config)),
      k_layernorm_(QkNorm(builder, "k_layernorm", config)) {}

Value SelfAttention::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  const Projected own = Copies(config_) ? ProjectApart(tape, x) : Project(tape, x);
  const Value q = Rotated(tape, own.q, q_layernorm_);
  const Value k = Rotated(tape, own.k, k_layernorm_);
  Value context = CoreAttention(tape, q, k, own.v, tape.pass.sequence_starts);
  if (config_.output_gate) context = SigmoidGate(tape, context, own.gate);
  return linear_proj_.Forward(tape, context);
}

// kSlices: every rank gathers all groups, whose gradients it holds its own queries' terms of, and
// takes its group; of that its queries.
SelfAttention::Projected SelfAttention::Project(Tape& tape, Value x) {
  Value qkv = linear_qkv_->Forward(tape, x);
  const bool slices = config_.regime == KvRegime::kSlices;
  if (slices) {
    qkv = AllGather(tape, qkv, Axis::kTp, Dim::kOut, GatherGrad::kReduceScatter);
    qkv = Regroup(tape, qkv, {.to = QkvDim(config_, true, true)});
    qkv = SliceReplicated(tape, qkv, Axis::kKv, Dim::kGroup);
  }
  const auto queries = [&](int part) {
    const Value heads = Heads(tape, qkv, part, /*query=*/true);
    return slices ? SliceReplicated(tape, heads, Axis::kKvCopy, Dim::kHeadInGroup) : heads;
  };
  const int key = static_cast<int>(QueryParts(config_));
  Projected own;
  own.q = queries(0);
  own.k = Heads(tape, qkv, key, /*query=*/false);
  own.v = Heads(tape, qkv, key + 1, /*query=*/false);
  if (config_.output_gate) own.gate = queries(1);
  return own;
}

// kCopies: each rank's queries, and the keys and values of its group.
SelfAttention::Projected SelfAttention::ProjectApart(Tape& tape, Value x) {
  const Value heads = linear_q_->Forward(tape, x);
  const Value kv = linear_kv_->Forward(tape, x);
  const int64_t d = config_.head_dim;
  const auto entries = [&](int64_t first) {
    return TakeRange(tape, heads,
                     {.dim = Dim::kHeadDim, .first = first, .count = d, .as = Dim::kHeadDim});
  };
  Projected own;
  own.q = config_.output_gate ? entries(0) : heads;
  own.k = Heads(tape, kv, 0, /*query=*/false);
  own.v = Heads(tape, kv, 1, /*query=*/false);
  if (config_.output_gate) own.gate = entries(d);
  return own;
}

Value SelfAttention::Heads(Tape& tape, Value fused, int part, bool query) {
  const Value heads = TakeParts(tape, fused, {.dim = Dim::kGroup, .first = part});
  const Dims inner = query ? QueryHeads(config_) : Dims{HeadDim(config_)};
  return Unfold(tape, heads, {.dim = Dim::kGroup, .inner = inner});
}

Value SelfAttention::Rotated(Tape& tape, Value x, std::unique_ptr<RmsNormLayer>& norm) {
  if (norm) x = norm->Forward(tape, x);
  if (config_.rope.rotary_dim == 0) return x;
  RopeOptions rope = config_.rope;
  rope.starts = tape.pass.sequence_starts;
  return Rope(tape, x, std::move(rope));
}

void SelfAttention::CollectModules(std::vector<ToggleableModule>& modules) {
  for (const auto* linear : {&linear_qkv_, &linear_q_, &linear_kv_}) {
    if (*linear) (*linear)->CollectModules(modules);
  }
  linear_proj_.CollectModules(modules);
}

}  // namespace sumonce

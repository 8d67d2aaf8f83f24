#include "layers/gated_delta_net/gated_delta_net.h"

#include <cmath>

#include "spmd/collectives.h"
#include "spmd/ops/add_bias.h"
#include "spmd/ops/causal_conv.h"
#include "spmd/ops/delta_rule.h"
#include "spmd/ops/gated_norm.h"
#include "spmd/ops/gdn_decay.h"
#include "spmd/ops/l2_norm.h"
#include "spmd/ops/sigmoid.h"
#include "spmd/ops/silu.h"
#include "spmd/ops/take_parts.h"
#include "spmd/ops/take_range.h"
#include "spmd/ops/unfold.h"

namespace sumonce {
namespace {

// The parts of in_proj's output, in the order that all packings share.
enum Part { kQ, kK, kV, kZ, kBeta, kAlpha };

int64_t ValuesPerKey(const GatedDeltaNetConfig& config) {
  return config.num_value_heads / config.num_key_heads;
}

// One unit per key head with the parts first .. end-1.
DimExtent KeyHeads(const GatedDeltaNetConfig& config, int first, int end) {
  const int64_t rho = ValuesPerKey(config), values = rho * config.value_head_dim;
  const int64_t widths[] = {config.key_head_dim, config.key_head_dim, values, values, rho, rho};
  DimExtent k = {.dim = Dim::kKeyHead, .units = config.num_key_heads, .parts = {}};
  k.parts.assign(widths + first, widths + end);
  if (config.packing == GdnPacking::kMegatron) k.packing = Packing::kPartMajor;
  return k;
}

DimExtent ValueInKey(const GatedDeltaNetConfig& config) {
  return Plain(Dim::kValueInKey, ValuesPerKey(config));
}
DimExtent ValueDim(const GatedDeltaNetConfig& config) {
  return Plain(Dim::kHeadDim, config.value_head_dim);
}

// Hugging Face's projections among the parts first .. end-1.
std::vector<SubOutput> SubsIn(int first, int end) {
  std::vector<SubOutput> subs;
  for (const SubOutput& sub : {SubOutput{"in_proj_qkv", kQ, 3},
                               {"in_proj_z", kZ, 1},
                               {"in_proj_b", kBeta, 1},
                               {"in_proj_a", kAlpha, 1}}) {
    if (sub.first >= first && sub.first < end)
      subs.push_back({sub.name, sub.first - first, sub.count});
  }
  return subs;
}

LinearConfig InProj(const GatedDeltaNetConfig& config, int first, int end) {
  return {.out = {KeyHeads(config, first, end)},
          .in = {Plain(Dim::kHidden, config.hidden)},
          .cut = Dim::kKeyHead,
          .layer_norm = !config.decoupled_norm,
          .subs = SubsIn(first, end)};
}

LinearConfig OutProj(const GatedDeltaNetConfig& config) {
  return {.out = {Plain(Dim::kHidden, config.hidden)},
          .in = {Plain(Dim::kKeyHead, config.num_key_heads), ValueInKey(config), ValueDim(config)},
          .cut = Dim::kKeyHead};
}

constexpr Marks kReplicaMarks = {.average_gradients_across_tp_domain = true};

std::unique_ptr<LinearModule> MakeInProj(const Builder& builder, const GatedDeltaNetConfig& config,
                                         int first, int end) {
  const LinearConfig linear = InProj(config, first, end);
  if (IsReplica(config.mode))
    return std::make_unique<ReplicatedLinear>(builder, linear, kReplicaMarks);
  return std::make_unique<ColumnParallelLinear>(builder, linear);
}

std::unique_ptr<LinearModule> MakeOutProj(const Builder& builder,
                                          const GatedDeltaNetConfig& config) {
  const LinearConfig linear = OutProj(config);
  if (IsReplica(config.mode))
    return std::make_unique<ReplicatedLinear>(builder, linear, kReplicaMarks);
  return std::make_unique<RowParallelLinear>(builder, linear);
}

// A parameter cut by key heads; whole in a replica.
Param* PerHead(const Builder& builder, const GatedDeltaNetConfig& config, std::string_view name,
               Dims dims, Init init) {
  if (IsReplica(config.mode))
    return &builder.Create(name, ShardMap(std::move(dims), {}), init, kReplicaMarks);
  return &builder.Create(name, ShardMap(std::move(dims), {{Dim::kKeyHead, Axis::kTp}}), init,
                         ShardedMarks(0));
}

Value LastTokens(Tape& tape, Value x, int64_t count) {
  if (!x.valid()) return {};
  return TakeRange(tape, x,
                   {.dim = Dim::kSequence,
                    .first = tape.dims(x).front().extent() - count,
                    .count = count,
                    .as = Dim::kSequence});
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const Builder& builder, const GatedDeltaNetConfig& config)
    : name_(builder.name()),
      config_(config),
      norm_eps_(builder.config().norm_eps),
      sequence_parallel_(builder.config().sequence_parallel) {
  if (config.decoupled_projections) {
    in_proj_ = MakeInProj(builder.Child("in_proj_qkvz"), config, kQ, kBeta);
    in_proj_ba_ = MakeInProj(builder.Child("in_proj_ba"), config, kBeta, kAlpha + 1);
  } else {
    in_proj_ = MakeInProj(builder.Child("in_proj"), config, kQ, kAlpha + 1);
  }
  out_proj_ = MakeOutProj(builder.Child("out_proj"), config);
  const Dims heads = {Plain(Dim::kKeyHead, config.num_key_heads), ValueInKey(config)};
  const double bound = 1.0 / std::sqrt(static_cast<double>(config.conv_kernel_dim));
  const Builder conv1d = builder.Child("conv1d");
  conv1d_weight_ = PerHead(conv1d, config, "weight",
                           {KeyHeads(config, kQ, kZ), Plain(Dim::kTap, config.conv_kernel_dim)},
                           {.kind = Init::Kind::kUniform, .scale = bound});
  if (config.conv_bias) {
    conv1d_bias_ = PerHead(conv1d, config, "bias", {KeyHeads(config, kQ, kZ)},
                           {.kind = Init::Kind::kUniform, .scale = bound});
  }
  // Slow decays: with large A the state forgets within a token and hides errors of the recurrence.
  A_log_ = PerHead(builder, config, "A_log", heads,
                   {.kind = Init::Kind::kLogUniform, .scale = 0.05, .limit = 2.0});
  dt_bias_ = PerHead(builder, config, "dt_bias", heads, {.kind = Init::Kind::kOne});
  // A TENorm: marked with the configuration, though its gradient is partial by heads either way.
  // Never zero-centred.
  out_norm_weight_ =
      &builder.Child("out_norm")
           .Create(
               "weight", ShardMap({ValueDim(config)}, {}), NormInit(NormKind::kPlain),
               IsReplica(config.mode) ? kReplicaMarks : SequenceParallelMarks(builder.config()));
}

Value GatedDeltaNet::Forward(Tape& tape, Value x, GdnCarry* carry) {
  Tape::Scope scope(tape, name_);
  if (!sequence_parallel_ || config_.mode == GdnMode::kUpstream) return Inner(tape, x, carry);
  return IsReplica(config_.mode) ? Replica(tape, x, carry) : GatherRegion(tape, x, carry);
}

// Every rank computes the same. Scattered: each hands on its own tokens, whose gradients backward
// gathers. Divided: the sum of tp equal copies over tp is right forward; backward divides, too.
Value GatedDeltaNet::Replica(Tape& tape, Value x, GdnCarry* carry) {
  const bool divided = config_.mode == GdnMode::kReplicaDivided;
  x = AllGather(tape, x, Axis::kTp, Dim::kSequence,
                divided ? GatherGrad::kReduceScatter : GatherGrad::kSplit);
  const Value y = Inner(tape, x, carry);
  if (!divided) return ScatterToRegion(tape, y, Axis::kTp, Dim::kSequence);
  return tape.Multiply(ReduceScatter(tape, y, Axis::kTp, Dim::kSequence),
                       Scale::SizeOfGroup(tape.GroupOf(Axis::kTp), -1));
}

// Inside, every rank has all tokens and in_proj all-reduces its dgrad itself: the gradient is
// complete, so the gather's backward only splits.
Value GatedDeltaNet::GatherRegion(Tape& tape, Value x, GdnCarry* carry) {
  std::vector<ToggleableModule> modules;
  CollectModules(modules);
  const SequenceParallelOff off(modules, config_.region_marks);
  x = AllGather(tape, x, Axis::kTp, Dim::kSequence, GatherGrad::kSplit);
  return ScatterToRegion(tape, Inner(tape, x, carry), Axis::kTp, Dim::kSequence);
}

Value GatedDeltaNet::Inner(Tape& tape, Value x, GdnCarry* carry) {
  if (shared_norm_) x = shared_norm_->Forward(tape, x);
  const Value qkvz = in_proj_->Forward(tape, x);
  const Value ba = in_proj_ba_ ? in_proj_ba_->Forward(tape, x) : qkvz;
  return out_proj_->Forward(tape, Heads(tape, qkvz, ba, carry));
}

// [s, b, k/tp x (q, k, v, z)] and [s, b, k/tp x (beta, alpha)], or all six in both -> [s, b, k/tp,
// j, d].
Value GatedDeltaNet::Heads(Tape& tape, Value qkvz, Value ba, GdnCarry* carry) {
  const int beta_part = config_.decoupled_projections ? 0 : static_cast<int>(kBeta);
  const Dims key = {Plain(Dim::kHeadDim, config_.key_head_dim)};
  const Dims per_value = {ValueInKey(config_)};
  const Dims value = {ValueInKey(config_), ValueDim(config_)};
  const Value mixed = Mixed(tape, qkvz, carry);
  DeltaRuleInputs inputs;
  inputs.q = L2Norm(tape, Part(tape, mixed, kQ, key));
  inputs.k = L2Norm(tape, Part(tape, mixed, kK, key));
  inputs.v = Part(tape, mixed, kV, value);
  inputs.beta = Sigmoid(tape, Part(tape, ba, beta_part, per_value));
  inputs.g = GdnDecay(tape, Part(tape, ba, beta_part + 1, per_value), tape.Use(*A_log_),
                      tape.Use(*dt_bias_));
  if (carry) inputs.initial = carry->state;
  const DeltaRuleOptions options = {.starts = tape.pass.sequence_starts,
                                    .chunk = config_.chunk_size};
  const Value o = DeltaRule(tape, inputs, options);
  if (carry) carry->state = DeltaState(tape, inputs, options);
  Tape::Scope scope(tape, "out_norm");
  return GatedNorm(tape, o, Part(tape, qkvz, kZ, value), tape.Use(*out_norm_weight_),
                   {.eps = norm_eps_});
}

Value GatedDeltaNet::Mixed(Tape& tape, Value projected, GdnCarry* carry) {
  Tape::Scope scope(tape, "conv1d");
  const Value qkv = TakeParts(tape, projected, {.dim = Dim::kKeyHead, .first = kQ, .count = 3});
  Value convolved = CausalConv(tape, qkv, tape.Use(*conv1d_weight_), tape.pass.sequence_starts,
                               carry ? carry->conv : Value());
  if (carry) carry->conv = LastTokens(tape, qkv, config_.conv_kernel_dim - 1);
  if (conv1d_bias_) convolved = AddBias(tape, convolved, tape.Use(*conv1d_bias_));
  return Silu(tape, convolved);
}

Value GatedDeltaNet::Part(Tape& tape, Value x, int part, const Dims& inner) const {
  const Value taken = TakeParts(tape, x, {.dim = Dim::kKeyHead, .first = part});
  return Unfold(tape, taken, {.dim = Dim::kKeyHead, .inner = inner});
}

void GatedDeltaNet::CollectModules(std::vector<ToggleableModule>& modules) {
  in_proj_->CollectModules(modules);
  if (in_proj_ba_) in_proj_ba_->CollectModules(modules);
  out_proj_->CollectModules(modules);
}

}  // namespace sumonce

// Megatron-Core 0.12 to 0.19: megatron/core/distributed/finalize_model_grads.py at the tags
// core_v0.12.0 to core_v0.19.0, the steps that act on tp and dp (docs/THEORY.md "Finalizers"). One
// table for all versions: a rule stands once, with the first and the last version that has it.
//
// What changed and is not here: 0.14 skips parameters without a gradient; 0.15 resets temporary
// tensors; 0.16 can force an all-reduce; 0.18 divides by max(num_tokens, 1) where it divided only
// if num_tokens > 0 (a batch without tokens has no gradient either way). None of them changes a
// gradient over tp and dp.
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/finalize/finalizer.h"

namespace sumonce {
namespace {

constexpr int kOldest = 12;  // the minor version
constexpr int kNewest = 19;
constexpr int kCountedByEtp = 19;  // the first that looks at etp

bool Averaged(const Param& param, const FinalizeConfig&) {
  return param.marks.average_gradients_across_tp_domain;
}

bool MarkedWithSwitch(const Param& param, const FinalizeConfig& config) {
  return config.sequence_parallel && param.marks.sequence_parallel;
}

// A plain substring test over the dotted name, as the framework's.
bool NamedQkLayernorm(const Param& param) {
  return absl::StrContains(param.name, "q_layernorm") ||
         absl::StrContains(param.name, "k_layernorm");
}
bool NamedWithSwitch(const Param& param, const FinalizeConfig& config) {
  return config.qk_layernorm && NamedQkLayernorm(param);
}

// 0.12 enters the function if either switch is on, and then looks at marks and names alone: a stray
// mark counts without sequence parallelism, a name without qk_layernorm.
bool EitherSwitch(const FinalizeConfig& config) {
  return config.sequence_parallel || config.qk_layernorm;
}
bool MarkedIfEntered(const Param& param, const FinalizeConfig& config) {
  return EitherSwitch(config) && param.marks.sequence_parallel;
}
bool NamedIfEntered(const Param& param, const FinalizeConfig& config) {
  return EitherSwitch(config) && NamedQkLayernorm(param);
}

bool MeanLoss(const Param& param, const FinalizeConfig& config) {
  return param.marks.allreduce && !config.per_token_loss;
}
bool TokenLoss(const Param& param, const FinalizeConfig& config) {
  return param.marks.allreduce && config.per_token_loss;
}
// In the buffers of the experts, with the dense buffers' factor: 1/dp, not 1/edp
// (distributed_data_parallel.py).
bool ExpertMeanLoss(const Param& param, const FinalizeConfig& config) {
  return !param.marks.allreduce && !config.per_token_loss;
}
bool ExpertTokenLoss(const Param& param, const FinalizeConfig& config) {
  return !param.marks.allreduce && config.per_token_loss;
}
bool PerToken(const Param&, const FinalizeConfig& config) { return config.per_token_loss; }

struct VersionedRule {
  int first;
  int last;
  const char* step;
  FinalizeRule rule;
};

// In the order of the steps, and inside a step in the order in which rules are asked.
std::vector<VersionedRule> DataParallelRules() {
  const std::vector<Axis> dp = {Axis::kDp}, edp = {Axis::kEdp};
  return {
      {kOldest,
       kNewest,
       "data_parallel",
       {.name = "data_parallel_mean",
        .says = "all parameters but those marked allreduce=false: times 1/dp, summed over dp "
                "(mean-of-cells loss)",
        .axes = dp,
        .group = "dp",
        .divided_by = "dp",
        .claims = MeanLoss}},
      {kOldest,
       kNewest,
       "data_parallel",
       {.name = "data_parallel_sum",
        .says = "all parameters but those marked allreduce=false: summed over dp (per-token loss)",
        .axes = dp,
        .group = "dp",
        .claims = TokenLoss}},
      {kOldest,
       kNewest,
       "data_parallel",
       {.name = "expert_data_parallel_mean",
        .says =
            "parameters marked allreduce=false: times 1/dp, summed over edp, the ranks that hold "
            "the same experts (mean-of-cells loss)",
        .axes = edp,
        .group = "edp",
        .divided_by = "dp",
        .claims = ExpertMeanLoss}},
      {kOldest,
       kNewest,
       "data_parallel",
       {.name = "expert_data_parallel_sum",
        .says = "parameters marked allreduce=false: summed over edp, the ranks that hold the same "
                "experts (per-token loss)",
        .axes = edp,
        .group = "edp",
        .claims = ExpertTokenLoss}},
  };
}

std::vector<VersionedRule> TensorParallelRules() {
  const std::vector<Axis> tp = {Axis::kTp};
  return {
      {13,
       kNewest,
       "tensor_parallel",
       {.name = "average_over_tp",
        .says = "parameters marked average_gradients_across_tp_domain: averaged over tp",
        .axes = tp,
        .group = "tp",
        .map = Map::kAvg,
        .claims = Averaged}},
      {13,
       kNewest,
       "tensor_parallel",
       {.name = "sequence_parallel_sum",
        .says = "parameters marked sequence_parallel, with sequence parallelism on: summed over tp",
        .axes = tp,
        .group = "tp",
        .claims = MarkedWithSwitch}},
      {kOldest,
       12,
       "tensor_parallel",
       {.name = "sequence_parallel_sum",
        .says = "parameters marked sequence_parallel, with sequence parallelism or qk_layernorm "
                "on: summed over tp",
        .axes = tp,
        .group = "tp",
        .claims = MarkedIfEntered}},
      {13,
       kNewest,
       "tensor_parallel",
       {.name = "qk_layernorm_sum",
        .says = "parameters named q_layernorm or k_layernorm, with qk_layernorm on: summed over tp",
        .axes = tp,
        .group = "tp",
        .claims = NamedWithSwitch}},
      {kOldest,
       12,
       "tensor_parallel",
       {.name = "qk_layernorm_sum",
        .says = "parameters named q_layernorm or k_layernorm, with sequence parallelism or "
                "qk_layernorm on: summed over tp",
        .axes = tp,
        .group = "tp",
        .claims = NamedIfEntered}},
      {kOldest,
       kNewest,
       "per_token",
       {.name = "times_inverse_num_tokens",
        .says = "all parameters: times 1/num_tokens of the global batch (per-token loss)",
        .times_inverse_tokens = true,
        .claims = PerToken}},
  };
}

FinalizePreset PresetOf(int version) {
  FinalizePreset preset{.name = absl::StrCat("megatron_core_0_", version),
                        .steps = {},
                        .experts_counted_by_etp = version >= kCountedByEtp};
  std::vector<VersionedRule> table = DataParallelRules();
  for (VersionedRule& rule : TensorParallelRules()) table.push_back(std::move(rule));
  for (VersionedRule& entry : table) {
    if (version < entry.first || version > entry.last) continue;
    if (preset.steps.empty() || preset.steps.back().name != entry.step)
      preset.steps.push_back({.name = entry.step, .rules = {}});
    preset.steps.back().rules.push_back(std::move(entry.rule));
  }
  return preset;
}

}  // namespace

void RegisterMegatronCore(FinalizerRegistry& registry) {
  for (int version = kOldest; version <= kNewest; ++version) registry.Add(PresetOf(version));
}

}  // namespace sumonce

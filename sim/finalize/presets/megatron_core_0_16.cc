// Megatron-Core 0.16: megatron/core/distributed/finalize_model_grads.py, the steps that act on tp
// and dp (docs/THEORY.md "Finalizers"): the data-parallel sum with DDP's scaling, the gradients of
// parameters that are replicated over tp, and the per-token normalisation.
#include "absl/strings/match.h"
#include "sim/finalize/finalizer.h"

namespace sumonce {
namespace {

bool Averaged(const Param& param, const FinalizeConfig&) {
  return param.marks.average_gradients_across_tp_domain;
}

bool SequenceParallel(const Param& param, const FinalizeConfig& config) {
  return config.sequence_parallel && param.marks.sequence_parallel;
}

// A plain substring test over the dotted name, as the framework's.
bool QkLayernorm(const Param& param, const FinalizeConfig& config) {
  return config.qk_layernorm && (absl::StrContains(param.name, "q_layernorm") ||
                                 absl::StrContains(param.name, "k_layernorm"));
}

bool MeanLoss(const Param& param, const FinalizeConfig& config) {
  return param.marks.allreduce && !config.per_token_loss;
}
bool TokenLoss(const Param& param, const FinalizeConfig& config) {
  return param.marks.allreduce && config.per_token_loss;
}
bool PerToken(const Param&, const FinalizeConfig& config) { return config.per_token_loss; }

}  // namespace

void RegisterMegatronCore016(FinalizerRegistry& registry) {
  registry.Add({
      .name = "megatron_core_0_16",
      .steps =
          {
              {.name = "data_parallel",
               .rules = {{.name = "data_parallel_mean",
                          .says = "all parameters: times 1/dp, summed over dp (mean-of-cells loss)",
                          .axes = {Axis::kDp},
                          .group = "dp",
                          .divide_by_group = true,
                          .claims = MeanLoss},
                         {.name = "data_parallel_sum",
                          .says = "all parameters: summed over dp (per-token loss)",
                          .axes = {Axis::kDp},
                          .group = "dp",
                          .claims = TokenLoss}}},
              {.name = "tensor_parallel",
               .rules =
                   {{.name = "average_over_tp",
                     .says =
                         "parameters marked average_gradients_across_tp_domain: averaged over tp",
                     .axes = {Axis::kTp},
                     .group = "tp",
                     .map = Map::kAvg,
                     .claims = Averaged},
                    {.name = "sequence_parallel_sum",
                     .says = "parameters marked sequence_parallel, with sequence parallelism on: "
                             "summed over tp",
                     .axes = {Axis::kTp},
                     .group = "tp",
                     .claims = SequenceParallel},
                    {.name = "qk_layernorm_sum",
                     .says = "parameters named q_layernorm or k_layernorm, with qk_layernorm on: "
                             "summed over tp",
                     .axes = {Axis::kTp},
                     .group = "tp",
                     .claims = QkLayernorm}}},
              {.name = "per_token",
               .rules =
                   {{.name = "times_inverse_num_tokens",
                     .says =
                         "all parameters: times 1/num_tokens of the global batch (per-token loss)",
                     .times_inverse_tokens = true,
                     .claims = PerToken}}},
          },
  });
}

}  // namespace sumonce

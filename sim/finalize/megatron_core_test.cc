// Who is claimed by which rule, version by version: finalize_model_grads of the tags, by hand.
#include <gtest/gtest.h>

#include "sim/finalize/finalizer.h"

namespace sumonce {
namespace {

// The rule of the step that claims the parameter; "": none does.
std::string Claimed(int version, const std::string& step, const Param& param,
                    const FinalizeConfig& config) {
  const FinalizePreset preset = *Finalizers().Find("megatron_core_0_" + std::to_string(version));
  for (const FinalizeStep& candidate : preset.steps) {
    if (candidate.name != step) continue;
    const FinalizeRule* rule = Claiming(candidate, param, config);
    return rule ? rule->name : "";
  }
  ADD_FAILURE() << "no step " << step;
  return "";
}

Param Marked(Marks marks) { return {.name = "decoder.layers.0.mlp.linear_fc1.x", .marks = marks}; }
Param Named(const std::string& name) { return {.name = "decoder.layers.0." + name}; }

constexpr FinalizeConfig kOff = {}, kSp = {.sequence_parallel = true}, kQk = {.qk_layernorm = true};
constexpr char kTensor[] = "tensor_parallel";

// 0.12 looks at marks and names whatever the switch, once either switch lets it in at all.
TEST(MegatronCore, MarksAndNamesUnderTheirSwitches) {
  const Param marked = Marked({.sequence_parallel = true});
  const Param named = Named("self_attention.q_layernorm.weight");
  for (int version = 12; version <= 19; ++version) {
    SCOPED_TRACE(version);
    const bool old = version == 12;
    EXPECT_EQ(Claimed(version, kTensor, marked, kOff), "");
    EXPECT_EQ(Claimed(version, kTensor, marked, kSp), "sequence_parallel_sum");
    EXPECT_EQ(Claimed(version, kTensor, marked, kQk), old ? "sequence_parallel_sum" : "");
    EXPECT_EQ(Claimed(version, kTensor, named, kOff), "");
    EXPECT_EQ(Claimed(version, kTensor, named, kSp), old ? "qk_layernorm_sum" : "");
    EXPECT_EQ(Claimed(version, kTensor, named, kQk), "qk_layernorm_sum");
    EXPECT_EQ(Claimed(version, kTensor, Marked({}), kSp), "");
  }
}

// The average wins over the sum, with every switch off too; 0.12 does not know it.
TEST(MegatronCore, TheAverageWins) {
  const Param both =
      Marked({.sequence_parallel = true, .average_gradients_across_tp_domain = true});
  EXPECT_EQ(Claimed(12, kTensor, both, kSp), "sequence_parallel_sum");
  for (int version = 13; version <= 19; ++version) {
    EXPECT_EQ(Claimed(version, kTensor, both, kSp), "average_over_tp");
    EXPECT_EQ(Claimed(version, kTensor, both, kOff), "average_over_tp");
  }
}

// A plain substring of the dotted name.
TEST(MegatronCore, NamesThatHoldTheWord) {
  for (const char* name : {"self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight",
                           "my_q_layernorm_copy.lora_A.weight"})
    EXPECT_EQ(Claimed(16, kTensor, Named(name), kQk), "qk_layernorm_sum") << name;
  for (const char* name : {"self_attention.kv_layernorm.weight", "input_layernorm.weight"})
    EXPECT_EQ(Claimed(16, kTensor, Named(name), kQk), "") << name;
}

TEST(MegatronCore, DenseAndExpertsGroupsUnderBothLosses) {
  const FinalizeConfig mean = {.per_token_loss = false}, tokens = {.per_token_loss = true};
  const Param dense = Marked({}), expert = Marked({.allreduce = false});
  for (int version = 12; version <= 19; ++version) {
    SCOPED_TRACE(version);
    EXPECT_EQ(Claimed(version, "data_parallel", dense, mean), "data_parallel_mean");
    EXPECT_EQ(Claimed(version, "data_parallel", dense, tokens), "data_parallel_sum");
    EXPECT_EQ(Claimed(version, "data_parallel", expert, mean), "expert_data_parallel_mean");
    EXPECT_EQ(Claimed(version, "data_parallel", expert, tokens), "expert_data_parallel_sum");
    EXPECT_EQ(Claimed(version, "per_token", expert, tokens), "times_inverse_num_tokens");
    EXPECT_EQ(Claimed(version, "per_token", dense, mean), "");
  }
}

// A rule that is repeated stands in a step of its own, where no rule before it takes what is not
// its.
TEST(MegatronCore, RulesOfTheDataParallelStepClaimTheirOwnAlone) {
  const FinalizePreset preset = *Finalizers().Find("megatron_core_0_16");
  for (const bool expert : {false, true}) {
    for (const bool per_token : {false, true}) {
      for (const FinalizeRule& rule : preset.steps[0].rules) {
        const bool own = rule.name == std::string(expert ? "expert_" : "") +
                                          (per_token ? "data_parallel_sum" : "data_parallel_mean");
        EXPECT_EQ(rule.claims(Marked({.allreduce = !expert}), {.per_token_loss = per_token}), own)
            << rule.name << ", expert " << expert << ", per token " << per_token;
      }
    }
  }
}

// Experts' gradients are scaled by the dense group's size, not by their own.
TEST(MegatronCore, ExpertsAreDividedByTheDenseGroup) {
  const FinalizePreset preset = *Finalizers().Find("megatron_core_0_16");
  EXPECT_EQ(preset.FindRule("expert_data_parallel_mean")->divided_by, "dp");
  EXPECT_EQ(preset.FindRule("data_parallel_mean")->divided_by, "dp");
  EXPECT_EQ(preset.FindRule("expert_data_parallel_sum")->divided_by, "");
  // etp 1: edp is all 4 ranks, and the factor is 1/2.
  const Mesh mesh = *Mesh::Create({.tp = 2, .dp = 2, .etp = 1});
  State state;
  state.axes.fill(Equal());
  const State after = ApplyFinalizeStep(preset.steps[0], {.per_token_loss = false}, mesh,
                                        Marked({.allreduce = false}), state);
  EXPECT_EQ(after.scale.Evaluate(mesh), 2.0);
}

TEST(MegatronCore, WhatIsFrozenIsClaimedByNobody) {
  Param frozen = Marked({.sequence_parallel = true});
  frozen.requires_grad = false;
  for (const char* step : {"data_parallel", kTensor, "per_token"})
    EXPECT_EQ(Claimed(16, step, frozen, kSp), "") << step;
}

}  // namespace
}  // namespace sumonce

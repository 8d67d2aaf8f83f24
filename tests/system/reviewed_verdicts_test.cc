// Verdicts that a review found wrong: marks that differ between replicas, edits that do nothing or
// act on zeros, faults that others inherit, and roundings taken for faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/system/shipped.h"
#include "verify/run_once.h"
#include "verify/runner.h"

namespace sumonce {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kAttention[] =
    "layer { self_attention { num_heads: 24 num_query_groups: 12 head_dim: 4 qk_layernorm: true "
    "output_gate: true } mlp { ffn: 24 } }";
constexpr char kRegion[] =
    "layer { linear_attention { num_key_heads: 12 num_value_heads: 12 key_head_dim: 3 "
    "value_head_dim: 3 conv_kernel_dim: 3 mode: GATHER_REGION } mlp { ffn: 24 } }";
constexpr char kDelta[] =
    "layer { linear_attention { num_key_heads: 12 num_value_heads: 12 key_head_dim: 3 "
    "value_head_dim: 3 conv_kernel_dim: 3 } mlp { ffn: 24 } }";
constexpr char kNorm1[] = "decoder.layers.0.mlp.linear_fc1.layer_norm_weight";
constexpr char kWeight1[] = "decoder.layers.0.mlp.linear_fc1.weight";
constexpr char kInNorm[] = "decoder.layers.0.self_attention.in_proj.layer_norm_weight";
constexpr char kQkvNorm[] = "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight";

struct Reviewed {
  std::string mesh = "tp: 2";
  bool sequence_parallel = true;
  std::string layers = kAttention;
  std::string data = "data { sequence: 24 micro_batch: 1 microbatches: 1 }";
  std::string more;
  std::string finalizer = "megatron_core_0_16";
  int hidden = 16;
  std::string defect;
};

Scenario Read(const Reviewed& reviewed) {
  const std::string text =
      "mesh { " + reviewed.mesh +
      " }\nsequence_parallel: " + (reviewed.sequence_parallel ? "true" : "false") +
      "\nmodel { vocab: 24 hidden: " + std::to_string(reviewed.hidden) + " " + reviewed.layers +
      " }\n" + reviewed.data + "\n" + reviewed.more + "\nfinalizer: \"" + reviewed.finalizer +
      "\"\n" + (reviewed.defect.empty() ? "" : "defect { " + reviewed.defect + " }\n");
  ReadResult read = ReadScenarioText(text, "reviewed.textproto", "reviewed", {});
  for (const Mistake& mistake : read.mistakes) ADD_FAILURE() << Format(mistake);
  return read.scenario;
}

// Of the broken run. Numbers and proof must agree in all of these.
ScenarioResult ResultOf(const Scenario& scenario) {
  ScenarioResult result = RunScenario(scenario, RunnerOptions())[0];
  EXPECT_FALSE(result.internal_error) << ::testing::PrintToString(result.failures);
  return result;
}

const Finding* Of(const ScenarioResult& result, const std::string& param) {
  for (const Finding& finding : result.findings) {
    if (finding.verdict.param == param) return &finding;
  }
  ADD_FAILURE() << "nothing is found at " << param;
  return nullptr;
}

void ExpectCured(const Finding& finding) {
  ASSERT_TRUE(finding.cure) << finding.verdict.param;
  EXPECT_TRUE(finding.cure->right_in_numbers && finding.cure->right_in_proof)
      << finding.cure->text << ": " << finding.cure->result;
}

// The mark of a whole tensor-parallel group differs from its replicas': each class of ranks has the
// verdict of a run in which all ranks do what it does, in numbers and in the proof.
struct Marked {
  Reviewed reviewed;
  std::string param;
  Mechanism mechanism;
  std::string coefficient;
  std::string ranks;
};
// The name of the case: the same in every build.
void PrintTo(const Marked& marked, std::ostream* out) {
  *out << marked.param << " " << Name(marked.mechanism) << " " << marked.ranks;
}
class MarksOfReplicas : public ::testing::TestWithParam<Marked> {};

TEST_P(MarksOfReplicas, AreJudgedByClassOfRanks) {
  const Marked& marked = GetParam();
  const ScenarioResult result = ResultOf(Read(marked.reviewed));
  const Finding* finding = Of(result, marked.param);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->verdict.mechanism, marked.mechanism);
  EXPECT_EQ(finding->verdict.axis, Axis::kTp);
  EXPECT_EQ(finding->verdict.coefficient, marked.coefficient);
  EXPECT_EQ(finding->verdict.ranks, marked.ranks);
  ASSERT_TRUE(finding->proof);
  EXPECT_EQ(finding->proof->mechanism, marked.mechanism);
  EXPECT_EQ(finding->proof->ranks, marked.ranks);
  ExpectCured(*finding);
}

INSTANTIATE_TEST_SUITE_P(
    Of, MarksOfReplicas,
    ::testing::Values(
        Marked{{.mesh = "tp: 2 dp: 2",
                .layers = std::string(kRegion) + kAttention,
                .defect = "set_mark { param: \"*in_proj.layer_norm_weight\" mark: "
                          "SEQUENCE_PARALLEL when: AFTER_BACKWARD rank: 0 rank: 1 }"},
               kInNorm,
               Mechanism::kDoubleSum,
               "tp",
               "ranks 0 1"},
        Marked{{.mesh = "tp: 2 dp: 2",
                .defect = "set_mark { param: \"*linear_fc1.layer_norm_weight\" mark: "
                          "AVERAGE_GRADIENTS_ACROSS_TP_DOMAIN rank: 2 rank: 3 }"},
               kNorm1,
               Mechanism::kAveraged,
               "1/tp",
               "ranks 2 3"},
        Marked{{.mesh = "tp: 2 dp: 2",
                .defect = "set_mark { param: \"*linear_fc1.weight\" mark: SEQUENCE_PARALLEL rank: "
                          "0 rank: 1 }"},
               kWeight1,
               Mechanism::kMixedShards,
               "none: a mixture",
               "ranks 0 1"},
        Marked{{.mesh = "tp: 2 dp: 2",
                .defect = "set_mark { param: \"*linear_fc1.weight\" mark: "
                          "AVERAGE_GRADIENTS_ACROSS_TP_DOMAIN rank: 2 rank: 3 }"},
               kWeight1,
               Mechanism::kMixedShards,
               "none: a mixture",
               "ranks 2 3"}));

// Edits that provably change nothing: a mark that no rule reads, the map that is there already, a
// gradient for the maximum that softmax subtracts, once all ranks' terms of it are added up.
TEST(IdleEdits, AreProvedEqual) {
  for (const Reviewed& idle : {
           Reviewed{.sequence_parallel = false,
          .defect = "set_mark { param: \"*linear_qkv.layer_norm_weight\" mark: "
                    "SEQUENCE_PARALLEL rank: 1 }"},
           Reviewed{.defect = "collective { operation: \"*.linear_proj/ReduceScatter#0\" "
                              "direction: BACKWARD map: ALL_GATHER rank: 0 }"},
           Reviewed{.defect = "collective { operation: \"loss/*\" direction: BACKWARD map: AVG }"},
           Reviewed{.more = "qk_layernorm: true",
           .defect = "set_mark { param: \"*k_layernorm*\" mark: SEQUENCE_PARALLEL "
                     "rank: 0 }"},
       }) {
    const Scenario scenario = Read(idle);
    const RunOnce run = RunScenarioOnce(scenario, scenario.defects, SimOptions());
    EXPECT_THAT(run.disagreements, IsEmpty());
    for (const auto& [param, proof] : run.proof.proofs)
      EXPECT_EQ(proof.outcome, Outcome::kRight) << idle.defect << " " << param;
  }
}

// Without the sum over ranks each holds its own terms of the maximum's gradient, which is wrong.
TEST(IdleEdits, TermsOfAVanishingGradientAreNone) {
  const Scenario scenario =
      Read({.defect = "collective { operation: \"loss/*\" direction: BACKWARD map: IDENTITY }"});
  const ScenarioResult result = ResultOf(scenario);
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].verdict.mechanism, Mechanism::kUpstream);
  EXPECT_EQ(result.findings[0].verdict.operation, "loss/StopMax#0");
  ExpectCured(result.findings[0]);
}

// What an edit acts on is zero in this data: right numbers are no evidence, and the proof's silence
// no contradiction.
TEST(Zeros, ShowNoFault) {
  const std::string loss_at_the_end =
      "data { sequence: 24 micro_batch: 1 microbatches: 1 loss_on { from: 0.8 to: 1 } }";
  const std::string adapter =
      "lora { r: 2 lora_alpha: 8 target: \"linear_fc2\" train_base: true lora_bias: true }";
  struct Case {
    Reviewed reviewed;
    std::string param;
  };
  for (const Case& zeros : {
           Case{{.data = loss_at_the_end,
          .defect = "permute_shard { param: \"decoder.final_layernorm.weight\" rank: 0 }"},
                "decoder.final_layernorm.weight"},
           Case{{.data = loss_at_the_end,
           .defect = "scale_gradient { param: \"*linear_fc1.layer_norm_weight\" factor: 2 "
                     "rank: 0 }"},
                kNorm1},
           Case{{.layers = "layer { self_attention { num_heads: 12 num_query_groups: 12 head_dim: "
                           "4 } shared_expert { ffn: 12 overlap: true gate: true } }",
           .more = adapter},
                "decoder.final_layernorm.weight"},
       }) {
    const ScenarioResult result = ResultOf(Read(zeros.reviewed));
    const Finding* finding = Of(result, zeros.param);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->verdict.outcome, Outcome::kNoStatement);
    EXPECT_THAT(finding->verdict.evidence, Contains(HasSubstr("cannot show the fault")));
  }
}

// A gradient that is zero in the first step parts its copies later than others.
TEST(Drift, OfAGradientThatWasZeroFirst) {
  Scenario scenario = testing::Shipped("lora/pr_173");
  scenario.defects.push_back(
      {.kind = MarkEdit{.param = "*.linear_qkv.lora_A", .set = false}, .location = {}});
  const ScenarioResult result = ResultOf(scenario);
  for (const int layer : {1, 3}) {
    const Finding* finding =
        Of(result, "decoder.layers." + std::to_string(layer) + ".self_attention.linear_qkv.lora_A");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->verdict.mechanism, Mechanism::kMissingSum);
    EXPECT_THAT(finding->verdict.consequences, Contains(Mechanism::kReplicaDrift));
  }
}

// One fault is one finding with one cure: what inherits it is listed under it.
TEST(OneFault, IsOneFinding) {
  const std::string sp_off_layers =
      "layer { self_attention { num_heads: 12 num_query_groups: 12 head_dim: 4 } mlp { ffn: 24 } } "
      "layer { self_attention { num_heads: 12 num_query_groups: 12 head_dim: 4 } mlp { ffn: 24 } }";
  struct Case {
    Reviewed reviewed;
    std::string operation;
    std::string inherits;
  };
  for (const Case& one : {
           Case{{.layers = std::string(kRegion) + kAttention},
                "decoder.layers.0.self_attention.in_proj/Copy#0",
                kInNorm},
           Case{{.sequence_parallel = false, .layers = sp_off_layers},
                "decoder.layers.0.self_attention.linear_qkv/Copy#0",
                kQkvNorm},
       }) {
    for (const std::string map : {"IDENTITY", "AVG"}) {
      Reviewed reviewed = one.reviewed;
      reviewed.defect = "collective { operation: \"" + one.operation +
                        "\" direction: BACKWARD map: " + map + " }";
      const ScenarioResult result = ResultOf(Read(reviewed));
      ASSERT_EQ(result.findings.size(), 1u) << reviewed.defect;
      const Verdict& verdict = result.findings[0].verdict;
      EXPECT_EQ(verdict.mechanism, Mechanism::kUpstream);
      EXPECT_EQ(verdict.operation, one.operation);
      std::vector<std::string> params = verdict.affected;
      params.push_back(verdict.param);
      EXPECT_THAT(params, Contains(one.inherits));
      ExpectCured(result.findings[0]);
    }
  }
}

// A parameter's own fault below one that comes from above stays a finding of its own, and both
// cures hold together.
TEST(OneFault, DoesNotHideAnother) {
  Scenario scenario =
      Read({.layers = std::string(kRegion) + kAttention,
            .defect = "collective { operation: \"decoder.layers.0.self_attention.in_proj/Copy#0\" "
                      "direction: BACKWARD map: IDENTITY }"});
  scenario.defects.push_back(
      {.kind = MarkEdit{.param = "*.layers.1.mlp.linear_fc1.layer_norm_weight", .set = false},
       .location = {}});
  const ScenarioResult result = ResultOf(scenario);
  ASSERT_EQ(result.findings.size(), 2u);
  for (const Finding& finding : result.findings) ExpectCured(finding);
  const Finding* own = Of(result, "decoder.layers.1.mlp.linear_fc1.layer_norm_weight");
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->verdict.mechanism, Mechanism::kMissingSum);
}

constexpr char kAveragedNorm[] = "decoder.layers.0.mlp.linear_fc1.layer_norm_weight";
Scenario AveragedOnOneRank() {
  return Read({.sequence_parallel = false,
               .layers = std::string(kDelta) + kAttention,
               .defect = absl::StrCat("set_mark { param: \"", kAveragedNorm,
                                      "\" mark: AVERAGE_GRADIENTS_ACROSS_TP_DOMAIN rank: 1 }")});
}

// A run that did not end is cured if what was marked is right: another parameter's own fault, there
// without the edit too, says nothing of the cure.
TEST(OneFault, OfTheRunIsCuredBesideAnother) {
  const ScenarioResult result = ResultOf(AveragedOnOneRank());
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].verdict.mechanism, Mechanism::kDeadlock);
  ExpectCured(result.findings[0]);
}

// A cure with which the run ends, but what it marks is wrong for another reason, is none.
TEST(OneFault, OfTheRunIsNotCuredWhileItsParameterIsWrong) {
  Scenario scenario = AveragedOnOneRank();
  scenario.defects.push_back(
      {.kind = ScaleEdit{.param = kAveragedNorm, .factor = 3}, .location = {}});
  const ScenarioResult result = ResultOf(scenario);
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].verdict.mechanism, Mechanism::kDeadlock);
  const auto& cure = result.findings[0].cure;
  EXPECT_FALSE(cure && cure->right_in_numbers && cure->right_in_proof) << cure->result;
}

// The rule whose group is wrong is sent back; no other is dropped for it.
TEST(WrongGroups, AreSetRight) {
  const Scenario scenario =
      Read({.mesh = "tp: 2 dp: 2",
            .layers = std::string(kDelta) + kAttention,
            .defect = "wrong_group { rule: \"data_parallel_sum\" param: \"*layer_norm*\" group: "
                      "\"tp\" }"});
  const ScenarioResult result = ResultOf(scenario);
  const Finding* finding = Of(result, kNorm1);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->verdict.mechanism, Mechanism::kWrongGroup);
  ExpectCured(*finding);
  EXPECT_THAT(finding->cure->text, HasSubstr("data_parallel_sum"));
  EXPECT_THAT(finding->cure->text, ::testing::Not(HasSubstr("sequence_parallel_sum")));
}

// With loss on the first token alone its scores have no gradient: what is left of the terms is
// rounding, as large in one sound run as in another, and no fault.
TEST(Roundings, AreNotLocatedAsFaults) {
  const std::string plain =
      "layer { self_attention { num_heads: 12 num_query_groups: 12 head_dim: 4 } mlp { ffn: 12 } "
      "} ";
  const std::string last =
      "layer { self_attention { num_heads: 12 num_query_groups: 12 head_dim: 4 qk_layernorm: true "
      "output_gate: true } mlp { ffn: 12 } }";
  Reviewed reviewed{
      .mesh = "tp: 4",
      .sequence_parallel = false,
      .layers = plain + plain + last,
      .data = "data { sequence: 12 micro_batch: 1 microbatches: 2 loss_on { from: 0 to: 0.2 } }",
      .finalizer = "megatron_core_0_19",
      .hidden = 8,
      .defect =
          "collective { operation: \"decoder.layers.0.self_attention.linear_qkv/Copy#0\" "
          "direction: BACKWARD map: IDENTITY }"};
  for (const int seed : {763, 764, 7, 8, 9}) {
    reviewed.more = "loss: MEAN_OF_CELLS seed: " + std::to_string(seed);
    const ScenarioResult result = ResultOf(Read(reviewed));
    ASSERT_EQ(result.findings.size(), 1u) << seed;
    EXPECT_EQ(result.findings[0].verdict.operation,
              "decoder.layers.0.self_attention.linear_qkv/Copy#0")
        << seed;
  }
}

// A number that is also an axis' size is not therefore that axis': the proof knows.
TEST(Coefficients, AreNotNamedAfterASizeByChance) {
  for (const std::string factor : {"4", "2"}) {
    const ScenarioResult result = ResultOf(Read(
        {.mesh = "tp: 4 dp: 2",
         .defect = "scale_gradient { param: \"*linear_fc1.layer_norm_weight\" factor: " + factor +
                   " }"}));
    const Finding* finding = Of(result, kNorm1);
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->verdict.mechanism, Mechanism::kWrongScale);
    EXPECT_EQ(finding->verdict.coefficient, factor);
    EXPECT_FALSE(finding->verdict.axis);
    EXPECT_THAT(finding->verdict.evidence,
                Contains("every rank holds " + factor + " times the reference"));
  }
}

}  // namespace
}  // namespace sumonce

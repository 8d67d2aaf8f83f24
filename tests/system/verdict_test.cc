// Verdicts, cures and agreement on scenarios that once got them wrong, and on random clean ones,
// which must never.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/system/shipped.h"
#include "verify/run_once.h"
#include "verify/runner.h"

namespace sumonce {
namespace {

using ::testing::IsEmpty;

constexpr char kProjA[] = "decoder.layers.0.self_attention.linear_proj.lora_A";
constexpr char kProjB[] = "decoder.layers.0.self_attention.linear_proj.lora_B";

RunOnce Judged(const Scenario& scenario, const std::vector<Edit>& edits) {
  RunOnce run = RunScenarioOnce(scenario, edits, SimOptions());
  EXPECT_TRUE(run.run_status.ok()) << run.run_status;
  EXPECT_THAT(run.disagreements, IsEmpty());
  return run;
}

void ExpectAllRight(const RunOnce& run, const std::string& what) {
  for (const auto& [param, verdict] : run.verdicts) {
    EXPECT_EQ(verdict.outcome, Outcome::kRight)
        << what << " " << param << " " << Name(verdict.mechanism);
  }
}

GatedDeltaNetConfig Gdn(int64_t hidden) {
  return {.hidden = hidden,
          .num_key_heads = 4,
          .num_value_heads = 8,
          .key_head_dim = 4,
          .value_head_dim = 4};
}

// Norms, the delta rule and softmax amplify roundings, more with every layer: no false alarm in
// deep models.
TEST(FalseAlarms, DeepModelsAreRight) {
  Scenario scenario =
      testing::Shipped("gdn/upstream", {.axes = {{Axis::kTp, 2}, {Axis::kDp, 1}}, .seed = {}});
  scenario.data.microbatches = 1;
  for (const int layers : {8, 24}) {
    scenario.model.layers.assign(layers, {.mixer = Gdn(16), .mlp = MlpConfig()});
    for (const uint64_t seed : {3, 4}) {
      scenario.seed = seed;
      ExpectAllRight(Judged(scenario, {}), std::to_string(layers) + " layers");
    }
  }
}

// Sizes, layers, targets, masks and meshes drawn at random, all sound.
TEST(FalseAlarms, RandomCleanConfigurationsAreRight) {
  const std::vector<std::string> targets = {"linear_qkv", "linear_proj", "linear_fc1",
                                            "linear_fc2", "in_proj",     "out_proj"};
  for (uint64_t number = 0; number < 40; ++number) {
    const RandomStream draw(number, "clean configuration");
    Scenario scenario = testing::Shipped("lora/all_targets");
    scenario.seed = number;
    scenario.mesh.tp = static_cast<int>(int64_t{1} << draw.Integer(0, 0, 2));
    scenario.mesh.dp = static_cast<int>(draw.Integer(1, 1, 3));
    scenario.sequence_parallel = draw.Integer(2, 0, 3) > 0;
    scenario.loss = draw.Integer(3, 0, 1) ? LossMode::kPerToken : LossMode::kMeanOfCells;
    scenario.data = {.sequence = 8 * draw.Integer(4, 1, 2),
                     .micro_batch = draw.Integer(5, 1, 2),
                     .microbatches = static_cast<int>(draw.Integer(6, 1, 2)),
                     .loss_on = {},
                     .from_file = {}};
    if (draw.Integer(7, 0, 1)) scenario.data.loss_on = {{.from = 0.5, .to = 1}};
    scenario.model.layers.clear();
    bool qk_layernorm = false;
    for (int layer = 0; layer < draw.Integer(8, 1, 3); ++layer) {
      const bool attention = draw.Integer(10 + layer, 0, 1);
      DecoderLayerConfig config{.mixer = Gdn(16), .mlp = MlpConfig()};
      if (attention)
        config.mixer =
            SelfAttentionConfig{.num_query_groups = 4, .output_gate = draw.Integer(20, 0, 1) == 1};
      qk_layernorm |= attention;
      scenario.model.layers.push_back(config);
    }
    scenario.qk_layernorm = qk_layernorm;
    LoraConfig& lora = scenario.model.common.lora;
    lora.enabled = draw.Integer(9, 0, 2) > 0;
    lora.targets = targets;
    scenario.model.common.train_base = !lora.enabled;
    const RunOnce run = Judged(scenario, {});
    for (const auto& [param, verdict] : run.verdicts) {
      // The one gap of this preset: nobody sums out_norm without sequence parallelism
      // (gdn/out_norm_sp_off).
      const bool gap =
          param.ends_with("out_norm.weight") && !scenario.sequence_parallel && scenario.mesh.tp > 1;
      EXPECT_EQ(verdict.outcome, gap ? Outcome::kWrong : Outcome::kRight) << number << " " << param;
    }
  }
}

// Two edits of one rule, for different parameters, both act.
TEST(Edits, OfOneRuleAddUp) {
  const Scenario scenario = testing::Shipped("lora/all_targets");
  const auto drop = [](const char* param) {
    return Edit{.kind = RuleEdit{.rule = "data_parallel_sum", .param = param}, .location = {}};
  };
  const RunOnce run = Judged(scenario, {drop("*.linear_fc1.lora_B"), drop("*.linear_fc2.lora_A")});
  for (const auto& [param, verdict] : run.verdicts) {
    const bool dropped =
        param.ends_with("linear_fc1.lora_B") || param.ends_with("linear_fc2.lora_A");
    EXPECT_EQ(verdict.mechanism, dropped ? Mechanism::kMissingSum : Mechanism::kNone) << param;
  }
}

TEST(Proof, KnowsTheFactorOfTheTokenCount) {
  const Scenario scenario = testing::Shipped("lora/all_targets");
  for (const RuleEdit::How how : {RuleEdit::How::kDrop, RuleEdit::How::kRepeat}) {
    const RunOnce run = Judged(
        scenario,
        {{.kind = RuleEdit{.how = how, .rule = "times_inverse_num_tokens"}, .location = {}}});
    for (const auto& [param, verdict] : run.verdicts) {
      EXPECT_EQ(verdict.mechanism, Mechanism::kWrongScale) << param;
      EXPECT_EQ(run.proof.proofs.at(param).coefficient,
                how == RuleEdit::How::kDrop ? "num_tokens" : "1/num_tokens");
    }
  }
}

// A sum over tp and dp together after the sum over dp: dp's factor, also where tp and dp have one
// size.
TEST(Diagnosis, NamesTheAxisWhereSizesAreEqual) {
  const Scenario scenario = testing::Shipped("dp/wrong_group");
  const RunOnce run = Judged(scenario, {{.kind = RuleEdit{.how = RuleEdit::How::kOtherGroup,
                                                          .rule = "sequence_parallel_sum",
                                                          .param = kProjB,
                                                          .group = "tp_dp"},
                                         .location = {}}});
  EXPECT_EQ(run.verdicts.at(kProjB).mechanism, Mechanism::kDoubleSum);
  EXPECT_EQ(run.verdicts.at(kProjB).axis, Axis::kDp);
  EXPECT_EQ(run.verdicts.at(kProjB).coefficient, "dp");
}

// Averaged over tp and summed twice over dp on 2 x 2 ranks: the numbers are right by accident, the
// program is not.
TEST(Diagnosis, FactorsThatCancelOnThisMeshAreNotRight) {
  const Scenario scenario = testing::Shipped("dp/wrong_group");
  const RunOnce run = Judged(
      scenario,
      {{.kind =
            RuleEdit{
                .how = RuleEdit::How::kAverage, .rule = "sequence_parallel_sum", .param = kProjB},
        .location = {}},
       {.kind =
            RuleEdit{.how = RuleEdit::How::kRepeat, .rule = "data_parallel_sum", .param = kProjB},
        .location = {}}});
  EXPECT_EQ(run.numbers.at(kProjB).outcome, Outcome::kRight);
  EXPECT_EQ(run.verdicts.at(kProjB).outcome, Outcome::kWrong);
}

TEST(Diagnosis, OverflowIsNotFiniteAndNoDisagreement) {
  Scenario scenario = testing::Shipped("lora/row_flag_missing");
  scenario.model.common.init_std = 1e200;
  const RunOnce run = Judged(scenario, {});
  EXPECT_EQ(run.verdicts.at("decoder.layers.1.self_attention.linear_proj.lora_B").mechanism,
            Mechanism::kNotFinite);
}

// A mark cleared on every rank by their numbers is a mark cleared: MISSING_SUM, not a disagreement
// of ranks.
TEST(Proof, MarksOfAllRanksNamedOneByOneAgree) {
  const Scenario scenario = testing::Shipped("lora/row_flag_missing");
  const RunOnce run = Judged(
      scenario,
      {{.kind = MarkEdit{.param = "*.linear_proj.lora_B", .set = false, .ranks = {0, 1, 2, 3}},
        .location = {}}});
  EXPECT_EQ(run.proof.proofs.at("decoder.layers.1.self_attention.linear_proj.lora_B").mechanism,
            Mechanism::kMissingSum);
}

// A collective that some ranks run otherwise: where they are whole groups the run ends, and the
// proof is silent below it alone; where a group is divided it does not end; all ranks named one by
// one are all ranks.
TEST(Proof, CollectivesOfSomeRanksLeaveTheOthersProved) {
  const Scenario scenario =
      testing::Shipped("gdn/upstream", {.axes = {{Axis::kTp, 2}, {Axis::kDp, 2}}, .seed = {}});
  const auto dropped_on = [](std::vector<int> ranks) {
    return std::vector<Edit>{
        {.kind = CollectiveEdit{.operation = "decoder.layers.1.mlp.linear_fc1/AllGather#0",
                                .direction = Direction::kBackward,
                                .map = Map::kSplit,
                                .ranks = std::move(ranks)},
         .location = {}}};
  };
  const std::string below = "decoder.layers.1.mlp.linear_fc1.layer_norm_weight";
  const std::string above = "decoder.layers.1.mlp.linear_fc1.weight";
  for (const std::vector<int>& group : {std::vector<int>{0, 1}, std::vector<int>{2, 3}}) {
    const RunOnce run = Judged(scenario, dropped_on(group));
    EXPECT_EQ(run.verdicts.at(below).outcome, Outcome::kWrong);
    EXPECT_EQ(run.proof.proofs.at(below).outcome, Outcome::kNoStatement);
    EXPECT_EQ(run.proof.proofs.at(below).operation, "decoder.layers.1.mlp.linear_fc1/AllGather#0");
    EXPECT_EQ(run.verdicts.at(above).outcome, Outcome::kRight);
    EXPECT_EQ(run.proof.proofs.at(above).outcome, Outcome::kRight);
  }
  const RunOnce everywhere = Judged(scenario, dropped_on({}));
  const RunOnce one_by_one = Judged(scenario, dropped_on({0, 1, 2, 3}));
  for (const auto& [param, proof] : everywhere.proof.proofs)
    EXPECT_EQ(one_by_one.proof.proofs.at(param).after, proof.after) << param;
  const RunOnce divided = RunScenarioOnce(scenario, dropped_on({1, 2}), SimOptions());
  EXPECT_FALSE(divided.run_status.ok());
  EXPECT_THAT(divided.proof.refused, ::testing::HasSubstr("do not make the same calls"));
}

const Finding* FindingOf(const ScenarioResult& result, Mechanism mechanism) {
  for (const Finding& finding : result.findings) {
    if (finding.verdict.mechanism == mechanism) return &finding;
  }
  return nullptr;
}

// Every shipped fault that a mark, a rule or a communication can cure gets a cure, and it was tried
// and right.
TEST(Cures, AreTriedAndRight) {
  const std::vector<Mechanism> beyond = {Mechanism::kLostContribution, Mechanism::kStale,
                                         Mechanism::kWrongShard,       Mechanism::kLocalGradient,
                                         Mechanism::kWrongScale,       Mechanism::kMixedUse,
                                         Mechanism::kNotFinite};
  int cures = 0;
  for (const ScenarioFile& file : testing::ShippedFiles()) {
    const Scenario scenario = testing::Shipped(file.name);
    if (scenario.steps > 3 || file.name.starts_with("hang/")) continue;
    const ScenarioResult result = RunScenario(scenario, RunnerOptions())[0];
    for (const Finding& finding : result.findings) {
      const Mechanism mechanism = finding.verdict.mechanism;
      const bool of_transport = file.name.starts_with("transport/");
      // Of a weight's own two uses; where its output's meet, a communication can mend it.
      const bool at_communication = mechanism == Mechanism::kMixedUse &&
                                    finding.verdict.operation.find("/Use(") == std::string::npos;
      const bool is_beyond = std::find(beyond.begin(), beyond.end(), mechanism) != beyond.end();
      if (of_transport || (is_beyond && !at_communication)) {
        EXPECT_FALSE(finding.cure) << file.name << ": no mark or rule mends a " << Name(mechanism);
        continue;
      }
      ASSERT_TRUE(finding.cure) << file.name << " " << finding.verdict.param;
      EXPECT_TRUE(finding.cure->tried && finding.cure->right_in_numbers &&
                  finding.cure->right_in_proof)
          << file.name << ": " << finding.cure->text << ": " << finding.cure->result;
      ++cures;
    }
  }
  EXPECT_GT(cures, 30);
}

TEST(Cures, OfTwoFaultsOnTwoAxes) {
  Scenario scenario = testing::Shipped("dp/wrong_group");
  scenario.defects = {
      {.kind = MarkEdit{.param = kProjB, .set = false}, .location = {}},
      {.kind = RuleEdit{.rule = "data_parallel_sum", .param = kProjB}, .location = {}}};
  const ScenarioResult result = RunScenario(scenario, RunnerOptions())[0];
  const Finding* finding = FindingOf(result, Mechanism::kMissingSum);
  ASSERT_NE(finding, nullptr);
  ASSERT_TRUE(finding->cure);
  EXPECT_TRUE(finding->cure->right_in_numbers) << finding->cure->result;
}

TEST(Expectations, AreCheckedByRunAndByProve) {
  Scenario scenario = testing::Shipped("lora/row_flag_missing");
  EXPECT_EQ(ProveScenario(scenario)[0].outcome, RunOutcome::kPass);
  scenario.expectations[0].mechanism = Mechanism::kDoubleSum;
  EXPECT_EQ(ProveScenario(scenario)[0].outcome, RunOutcome::kFail);
  EXPECT_EQ(RunScenario(scenario, RunnerOptions())[0].outcome, RunOutcome::kFail);
  scenario.expectations.clear();
  EXPECT_EQ(ProveScenario(scenario)[0].outcome, RunOutcome::kFail);
  EXPECT_EQ(RunScenario(scenario, RunnerOptions())[0].outcome, RunOutcome::kFail);
}

// A consequence has no factor of its own.
TEST(Expectations, OfAConsequenceWithAFactorAreNotMet) {
  Scenario scenario = testing::Shipped("lora/row_flag_missing");
  scenario.expectations[0].mechanism = Mechanism::kReplicaDrift;
  scenario.expectations[0].axis.reset();
  EXPECT_EQ(RunScenario(scenario, RunnerOptions())[0].outcome, RunOutcome::kPass);
  scenario.expectations[0].coefficient = "tp^3";
  EXPECT_EQ(RunScenario(scenario, RunnerOptions())[0].outcome, RunOutcome::kFail);
}

// On one rank there is nothing to sum: skipped with the reason, not failed.
TEST(Runner, SkipsAFaultOverAnAxisOfOneRank) {
  const Scenario scenario =
      testing::Shipped("lora/row_flag_missing", {.axes = {{Axis::kTp, 1}}, .seed = {}});
  for (const auto& results : {RunScenario(scenario, RunnerOptions()), ProveScenario(scenario)}) {
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].outcome, RunOutcome::kSkip);
    EXPECT_THAT(results[0].skip_reason, ::testing::HasSubstr("tp is 1"));
  }
}

// An edit that changes nothing is no control.
TEST(Runner, RefusesAControlThatDoesNotDiffer) {
  Scenario scenario = testing::Shipped("lora/averaged_complete");
  scenario.harmless = false;
  const std::vector<ScenarioResult> results = RunScenario(scenario, RunnerOptions());
  EXPECT_EQ(results[0].outcome, RunOutcome::kPass);
  EXPECT_EQ(results.back().outcome, RunOutcome::kFail);
  ASSERT_EQ(results.back().failures.size(), 1u);
  EXPECT_THAT(results.back().failures[0],
              ::testing::AllOf(::testing::HasSubstr("lora/averaged_complete, shows no fault"),
                               ::testing::HasSubstr("say harmless: true, and there is no @cured")));
}

}  // namespace
}  // namespace sumonce

// Copies that part: in which step, and behind what; and faults that leave no trace in weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_join.h"
#include "tests/system/shipped.h"
#include "verify/run_once.h"

namespace sumonce {
namespace {

using ::testing::HasSubstr;

constexpr char kGamma[] = "decoder.layers.0.self_attention.in_proj.layer_norm_weight";

std::string EvidenceOf(const Verdict& verdict) { return absl::StrJoin(verdict.evidence, "\n"); }

// A factor on one rank below what a rounding may do: every gradient is right, and copies part.
TEST(ReplicaDrift, AloneNamesStepAndOperation) {
  Scenario scenario = testing::Shipped("gpt/biases_and_positions");
  const std::string param = "embedding.position_embeddings.weight";
  scenario.steps = 3;
  const Edit scaled{.kind = ScaleEdit{.param = param, .factor = 1 + 0x1p-50, .ranks = {1}}};
  const RunOnce run = RunScenarioOnce(scenario, {{scaled}}, SimOptions());
  ASSERT_TRUE(run.run_status.ok()) << run.run_status;
  const Verdict& verdict = run.numbers.at(param);
  EXPECT_EQ(verdict.outcome, Outcome::kWrong);
  EXPECT_EQ(verdict.mechanism, Mechanism::kReplicaDrift);
  EXPECT_EQ(verdict.step, 1);
  EXPECT_THAT(verdict.operation, HasSubstr("position_embeddings/"));
  EXPECT_THAT(EvidenceOf(verdict),
              HasSubstr("its copies part in step 1 at " + verdict.operation +
                        ": its gradient is each rank's own, and no call of the finalizer makes the "
                        "copies' equal: REPLICA_DRIFT"));
}

// As the consequence of a missing sum it is told with the use that each rank has of its own.
TEST(ReplicaDrift, OfAMissingSumNamesTheUse) {
  const Scenario scenario = testing::Shipped("lora/row_flag_missing");
  const RunOnce run = RunScenarioOnce(scenario, scenario.defects, SimOptions());
  const Verdict& verdict = run.numbers.at("decoder.layers.1.self_attention.linear_proj.lora_B");
  EXPECT_THAT(verdict.consequences, ::testing::Contains(Mechanism::kReplicaDrift));
  EXPECT_THAT(
      EvidenceOf(verdict),
      HasSubstr("part in step 1 at decoder.layers.1.self_attention.linear_proj.lora_B/Linear#0"));
}

// Steps that are not recorded are not looked into.
TEST(ReplicaDrift, BetweenRecordedStepsNamesBoth) {
  Scenario scenario = testing::Shipped("gpt/biases_and_positions");
  const std::string param = "embedding.position_embeddings.weight";
  scenario.steps = 5;
  scenario.record_every = 2;
  const Edit scaled{.kind = ScaleEdit{.param = param, .factor = 1 + 0x1p-50, .ranks = {1}}};
  const RunOnce run = RunScenarioOnce(scenario, {{scaled}}, SimOptions());
  const Verdict& verdict = run.numbers.at(param);
  EXPECT_EQ(verdict.mechanism, Mechanism::kReplicaDrift);
  EXPECT_THAT(EvidenceOf(verdict), HasSubstr("its copies part between step 1 and step 3"));
}

// Adam divides a gradient by its own size: tp times the gradient moves the weight as the gradient
// does, but for eps.
TEST(SilentFaults, AFactorIsGoneBehindAdam) {
  const Scenario scenario = testing::Shipped("gdn/gamma_flagged");
  const RunOnce broken = RunScenarioOnce(scenario, scenario.defects, SimOptions());
  const RunOnce right = RunScenarioOnce(scenario, scenario.cures, SimOptions());
  ASSERT_TRUE(broken.run_status.ok() && right.run_status.ok());
  const ParamRecord& wrong = broken.record.ranks[0][0].params.at(kGamma);
  const ParamRecord& sound = right.record.ranks[0][0].params.at(kGamma);
  for (int64_t i = 0; i < wrong.weight_after.count(); ++i) {
    const double factor = wrong.finalized().data()[i] / sound.finalized().data()[i];
    EXPECT_NEAR(factor, scenario.mesh.tp, 1e-9);
    const double moved = std::fabs(sound.weight_after.data()[i] - sound.weight_before.data()[i]);
    EXPECT_NEAR(wrong.weight_after.data()[i], sound.weight_after.data()[i], 1e-3 * moved);
  }
}

}  // namespace
}  // namespace sumonce

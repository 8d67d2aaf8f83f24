// The two founding cases: their tables, their factors, their cures, and that neither is written
// into the code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/safetensors.h"
#include "sim/export/peft_adapter.h"
#include "spmd/whole.h"
#include "tests/system/shipped.h"
#include "verify/run_once.h"
#include "verify/runner.h"
#include "verify/trajectory.h"

namespace sumonce {
namespace {

constexpr char kLast[] = "decoder.layers.3.self_attention.linear_proj.lora_B";
constexpr char kEarlier[] = "decoder.layers.1.self_attention.linear_proj.lora_B";

Weights Start(const Scenario& scenario) {
  Model model(EffectiveModel(scenario));
  return *StartWeights(scenario, model.params());
}

std::vector<Edit> Cured(const Scenario& scenario) {
  std::vector<Edit> edits = scenario.defects;
  edits.insert(edits.end(), scenario.cures.begin(), scenario.cures.end());
  return edits;
}

// Greatest absolute entry on each tp rank of dp rank 0 after the last recorded step.
std::vector<double> Row(const Scenario& scenario, const RunRecord& record,
                        const std::string& param) {
  std::vector<double> row;
  for (int rank = 0; rank < scenario.mesh.tp; ++rank) {
    row.push_back(MaxAbs(record.ranks[rank].back().params.at(param).weight_after));
  }
  return row;
}

bool AnyAllZero(const Scenario& scenario, const RunRecord& record) {
  for (const auto& [name, tensor] : AdapterTensors(scenario, record)) {
    if (std::all_of(tensor.values.begin(), tensor.values.end(),
                    [](double value) { return value == 0; }))
      return true;
  }
  return false;
}

// Pull request 173: zero on tp ranks 0-2, not on 3; deeper layers differ per rank; the export has
// an all-zero tensor.
TEST(LoraReplica, TableOfTheReport) {
  const Scenario scenario = testing::Shipped("lora/pr_173");
  const SimResult result = Simulate(scenario, scenario.defects, Start(scenario), SimOptions());
  ASSERT_TRUE(result.status.ok()) << result.status;
  const std::vector<double> last = Row(scenario, result.record, kLast);
  EXPECT_THAT(std::vector<double>(last.begin(), last.begin() + 3), ::testing::Each(0.0));
  EXPECT_GT(last[3], 0.0);
  std::vector<double> earlier = Row(scenario, result.record, kEarlier);
  EXPECT_THAT(earlier, ::testing::Each(::testing::Gt(0.0)));
  std::sort(earlier.begin(), earlier.end());
  EXPECT_EQ(std::adjacent_find(earlier.begin(), earlier.end()), earlier.end())
      << "all four copies differ";
  EXPECT_TRUE(AnyAllZero(scenario, result.record));
}

TEST(LoraReplica, CuredCopiesAreEqualAndFollowTheUnshardedTrajectory) {
  const Scenario scenario = testing::Shipped("lora/pr_173");
  const SimResult result = Simulate(scenario, Cured(scenario), Start(scenario), SimOptions());
  ASSERT_TRUE(result.status.ok()) << result.status;
  for (const char* param : {kLast, kEarlier}) {
    for (const RankRecords& rank : result.record.ranks) {
      const auto values = rank.back().params.at(param).weight_after.values();
      const auto first = result.record.ranks[0].back().params.at(param).weight_after.values();
      EXPECT_TRUE(std::equal(values.begin(), values.end(), first.begin())) << param;
    }
    EXPECT_GT(Row(scenario, result.record, param)[0], 0.0);
  }
  const ProofRun clean = Prove(scenario, {});
  const Tolerance tolerance =
      DeriveTolerance(*clean.tape, scenario.data.microbatches, clean.mesh->world_size(), false);
  const TrajectoryResult trajectory =
      CompareTrajectory(scenario, result.record, Start(scenario), tolerance);
  EXPECT_TRUE(trajectory.equal) << trajectory.worst_param << " " << trajectory.diff_abs_max;
  EXPECT_FALSE(AnyAllZero(scenario, result.record));
  // The broken run is outside the same bound: the comparison has teeth.
  const SimResult broken = Simulate(scenario, scenario.defects, Start(scenario), SimOptions());
  EXPECT_FALSE(CompareTrajectory(scenario, broken.record, Start(scenario), tolerance).equal);
}

// Over so many steps that roundings alone part two runs, nothing is compared: a sound run does not
// fail for it.
TEST(LoraReplica, AChaoticTrajectoryIsNotCompared) {
  Scenario scenario = testing::Shipped("lora/pr_173");
  scenario.optimizer.lr = 0.3;
  scenario.steps = 150;
  const SimResult result = Simulate(scenario, Cured(scenario), Start(scenario), SimOptions());
  ASSERT_TRUE(result.status.ok()) << result.status;
  const ProofRun clean = Prove(scenario, {});
  const Tolerance tolerance =
      DeriveTolerance(*clean.tape, scenario.data.microbatches, clean.mesh->world_size(), false);
  const TrajectoryResult trajectory =
      CompareTrajectory(scenario, result.record, Start(scenario), tolerance);
  EXPECT_TRUE(trajectory.equal) << trajectory.diff_abs_max << " of " << trajectory.allowed;
  EXPECT_TRUE(trajectory.chaotic);
}

// Only tokens of rank 1's shard count: now it alone is not zero.
TEST(LoraReplica, MovingTheMaskMovesTheZeros) {
  Scenario scenario = testing::Shipped("lora/pr_173");
  scenario.data.loss_on = {{.from = 0.25, .to = 0.5}};
  const SimResult result = Simulate(scenario, scenario.defects, Start(scenario), SimOptions());
  ASSERT_TRUE(result.status.ok()) << result.status;
  const std::vector<double> last = Row(scenario, result.record, kLast);
  EXPECT_GT(last[1], 0.0);
  EXPECT_EQ(last[0], 0.0);
  EXPECT_EQ(last[2], 0.0);
  EXPECT_EQ(last[3], 0.0);
}

TEST(LoraReplica, AfterHundredStepsStillZeroOnRank0WhileLoraAMoves) {
  const Scenario scenario = testing::Shipped("lora/pr_173_100_steps");
  const SimResult result = Simulate(scenario, scenario.defects, Start(scenario), SimOptions());
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_GT(result.record.ranks[0].size(), 5u);
  const std::string lora_A = "decoder.layers.3.self_attention.linear_proj.lora_A";
  for (size_t i = 0; i < result.record.ranks[0].size(); ++i) {
    EXPECT_EQ(MaxAbs(result.record.ranks[0][i].params.at(kLast).weight_after), 0.0)
        << "recorded step " << i;
    for (int rank = 0; i > 0 && rank < scenario.mesh.tp; ++rank) {
      const ParamRecord& now = result.record.ranks[rank][i].params.at(lora_A);
      const ParamRecord& before = result.record.ranks[rank][i - 1].params.at(lora_A);
      EXPECT_FALSE(std::equal(now.weight_after.values().begin(), now.weight_after.values().end(),
                              before.weight_after.values().begin()))
          << "rank " << rank << " recorded step " << i;
    }
  }
}

class AtSize : public ::testing::TestWithParam<int> {};

// The factor is the size, whatever it is.
TEST_P(AtSize, GdnGammaIsTpTimesTheReference) {
  const int tp = GetParam();
  const std::string gamma = "decoder.layers.0.self_attention.in_proj.layer_norm_weight";
  for (const char* name : {"gdn/gamma_flagged", "gdn/gamma_toggled_and_restored"}) {
    const Scenario scenario = testing::Shipped(name, {.axes = {{Axis::kTp, tp}}, .seed = {}});
    const RunOnce run = RunScenarioOnce(scenario, scenario.defects, SimOptions());
    ASSERT_TRUE(run.run_status.ok()) << run.run_status;
    EXPECT_THAT(run.disagreements, ::testing::IsEmpty());
    const Verdict& verdict = run.verdicts.at(gamma);
    EXPECT_EQ(verdict.mechanism, Mechanism::kDoubleSum);
    EXPECT_EQ(verdict.coefficient, "tp");
    EXPECT_EQ(verdict.factor, tp);
    EXPECT_EQ(verdict.grad_class, GradClass::kComplete);
    // By hand, against the run in which the mark is left off.
    const RunOnce sound = RunScenarioOnce(scenario, {}, SimOptions());
    const Tensor& wrong = run.record.ranks[0][0].params.at(gamma).finalized();
    const Tensor& right = sound.record.ranks[0][0].params.at(gamma).finalized();
    for (int64_t i = 0; i < wrong.count(); ++i) {
      EXPECT_NEAR(wrong.data()[i], tp * right.data()[i], 1e-12 * std::max(1.0, MaxAbs(wrong)));
    }
  }
}

TEST_P(AtSize, LoraReplicaIsMissingItsSum) {
  const Scenario scenario =
      testing::Shipped("lora/row_flag_missing", {.axes = {{Axis::kTp, GetParam()}}, .seed = {}});
  const RunOnce run = RunScenarioOnce(scenario, scenario.defects, SimOptions());
  ASSERT_TRUE(run.run_status.ok()) << run.run_status;
  EXPECT_THAT(run.disagreements, ::testing::IsEmpty());
  const Verdict& verdict = run.verdicts.at("decoder.layers.1.self_attention.linear_proj.lora_B");
  EXPECT_EQ(verdict.mechanism, Mechanism::kMissingSum);
  EXPECT_EQ(verdict.axis, Axis::kTp);
  EXPECT_EQ(verdict.grad_class, GradClass::kPartial);
}

INSTANTIATE_TEST_SUITE_P(Tp, AtSize, ::testing::Values(2, 3, 4, 6, 12));

}  // namespace
}  // namespace sumonce

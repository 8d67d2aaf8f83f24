// What one parameter's finalized gradient adds to the square of the global norm, in units of the
// unsharded gradient's square, without and with the mark tensor_model_parallel: the figures that
// docs/THEORY.md "Norm and clipping" derives from state and mark.
#include "sim/grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/system/shipped.h"
#include "verify/run_once.h"

namespace sumonce {
namespace {

constexpr char kFinalNorm[] = "decoder.final_layernorm.weight";

double Square(const Tensor& tensor) {
  double sum = 0;
  for (const double value : tensor.values()) sum += value * value;
  return sum;
}

struct Figures {
  double counted = 0;  // over |G|^2
  bool miscounted = false;
};

// `edits` on the clipped scenario at tp 4, with or without the mark on `param`.
Figures FiguresOf(const std::string& param, std::vector<Edit> edits, bool marked) {
  Scenario scenario = testing::Shipped("clip/replica_counted_tp_times");
  edits.push_back(
      {.kind = MarkEdit{.param = param, .mark = Mark::kTensorModelParallel, .set = marked}});
  const RunOnce run = RunScenarioOnce(scenario, edits, SimOptions());
  EXPECT_TRUE(run.run_status.ok()) << run.run_status;
  EXPECT_TRUE(run.disagreements.empty()) << run.disagreements[0];
  Figures figures;
  for (int rank = 0; rank < 4; ++rank) {
    const ParamRecord& record = run.record.ranks[rank][0].params.at(param);
    if (CountsInNorm(record.marks, rank)) figures.counted += Square(record.finalized());
  }
  const SimResult reference = SimulateReference(scenario, run.start, 1, 1, SimOptions());
  figures.counted /= Square(reference.record.ranks[0][0].params.at(param).finalized());
  figures.miscounted = run.norm_verdict.has_value();
  return figures;
}

void ExpectFigures(const std::string& param, const std::vector<Edit>& edits, double unmarked,
                   double marked) {
  EXPECT_NEAR(FiguresOf(param, edits, false).counted, unmarked, 1e-9 * unmarked);
  EXPECT_NEAR(FiguresOf(param, edits, true).counted, marked, 1e-9 * marked);
}

TEST(GradNormFigures, ACopyCountsOnceOrOnEveryRank) {
  ExpectFigures(kFinalNorm, {}, 1, 4);
  EXPECT_FALSE(FiguresOf(kFinalNorm, {}, false).miscounted);
  EXPECT_TRUE(FiguresOf(kFinalNorm, {}, true).miscounted);
}

TEST(GradNormFigures, AFactorIsSquared) {
  ExpectFigures(kFinalNorm,
                {{.kind = RuleEdit{.how = RuleEdit::How::kRepeat,
                                   .rule = "sequence_parallel_sum",
                                   .param = kFinalNorm}}},
                16, 64);
  ExpectFigures(
      kFinalNorm,
      {{.kind = MarkEdit{.param = kFinalNorm, .mark = Mark::kAverageGradientsAcrossTpDomain}}},
      1.0 / 16, 1.0 / 4);
}

// Every rank's own share: rank 0's square, or all ranks'. Data decide how much that is.
TEST(GradNormFigures, AMissingSumCountsShares) {
  const std::vector<Edit> unsummed = {
      {.kind = MarkEdit{.param = kFinalNorm, .mark = Mark::kSequenceParallel, .set = false}}};
  const Figures unmarked = FiguresOf(kFinalNorm, unsummed, false);
  const Figures marked = FiguresOf(kFinalNorm, unsummed, true);
  EXPECT_LT(unmarked.counted, 1);
  EXPECT_GT(marked.counted, unmarked.counted);
  EXPECT_FALSE(unmarked.miscounted);
}

TEST(GradNormFigures, AShardNeedsTheMark) {
  const std::string shard = "decoder.layers.0.mlp.linear_fc2.weight";
  EXPECT_LT(FiguresOf(shard, {}, false).counted, 1);
  EXPECT_TRUE(FiguresOf(shard, {}, false).miscounted);
  EXPECT_NEAR(FiguresOf(shard, {}, true).counted, 1, 1e-9);
  EXPECT_FALSE(FiguresOf(shard, {}, true).miscounted);
}

// Rows of words that do not occur have no gradient: over all ranks as many zeros as unsharded.
TEST(GradNormFigures, ZerosAreCountedOnce) {
  const Scenario scenario = testing::Shipped("clip/replica_counted_tp_times");
  const RunOnce run = RunScenarioOnce(scenario, {}, SimOptions());
  const SimResult reference = SimulateReference(scenario, run.start, 1, 1, SimOptions());
  const int64_t zeros = reference.record.ranks[0][0].grad_norm->zeros;
  EXPECT_GT(zeros, 0);
  for (const RankRecords& rank : run.record.ranks) EXPECT_EQ(rank[0].grad_norm->zeros, zeros);
}

// What is reduced with the experts, with etp = 1: up to 0.18 tp rank 0 alone has it in its norm,
// later, or with the mark, every rank has.
TEST(GradNormFigures, WithEtpOneEachRankCountsItsExperts) {
  for (const auto& [version, marked, whole_on_rank_1] :
       {std::tuple{"18", false, false}, std::tuple{"18", true, true},
        std::tuple{"12", false, false}, std::tuple{"19", false, true},
        std::tuple{"19", true, true}}) {
    SCOPED_TRACE(::testing::Message() << version << (marked ? ", marked" : ""));
    Scenario scenario = testing::Shipped("versions/experts_norm_0_18");
    scenario.finalizer = std::string("megatron_core_0_") + version;
    std::vector<Edit> edits = scenario.defects;
    edits.push_back(
        {.kind = MarkEdit{.param = kFinalNorm, .mark = Mark::kTensorModelParallel, .set = marked}});
    const RunOnce run = RunScenarioOnce(scenario, edits, SimOptions());
    ASSERT_TRUE(run.run_status.ok()) << run.run_status;
    EXPECT_TRUE(run.disagreements.empty()) << run.disagreements[0];
    EXPECT_EQ(run.verdicts.at(kFinalNorm).outcome, Outcome::kRight);
    const SimResult reference = SimulateReference(scenario, run.start, 1, 1, SimOptions());
    double all = 0, own = 0;
    for (const auto& [name, param] : reference.record.ranks[0][0].params) {
      all += Square(param.finalized());
      if (name == kFinalNorm) own = Square(param.finalized());
    }
    for (int rank = 0; rank < 4; ++rank) {
      const bool whole = whole_on_rank_1 || rank % 2 == 0;
      const double norm = run.record.ranks[rank][0].grad_norm->norm;
      EXPECT_NEAR(norm, std::sqrt(whole ? all : all - own), 1e-12 * norm) << rank;
    }
    EXPECT_EQ(run.norm_verdict.has_value(), !whole_on_rank_1);
  }
}

// A slice is never whole there, whatever its marks.
TEST(GradNormFigures, WithEtpOneASliceOfTheExpertsIsMiscounted) {
  Scenario scenario = testing::Shipped("moe/expert_group_shard");
  scenario.optimizer.clip_grad = 1e-3;
  for (const char* version : {"megatron_core_0_16", "megatron_core_0_19"}) {
    scenario.finalizer = version;
    const RunOnce run = RunScenarioOnce(scenario, scenario.defects, SimOptions());
    EXPECT_TRUE(run.disagreements.empty()) << run.disagreements[0];
    ASSERT_TRUE(run.norm_verdict);
    EXPECT_EQ(run.norm_verdict->affected,
              std::vector<std::string>{"decoder.layers.0.mlp.linear_fc1.weight"});
  }
}

// A doubled gradient moves the clip factor, and with it every other parameter's gradient.
TEST(GradNormFigures, OneWrongGradientScalesAllOthers) {
  const Scenario scenario = testing::Shipped("clip/gamma_flagged");
  const RunOnce run = RunScenarioOnce(scenario, scenario.defects, SimOptions());
  ASSERT_TRUE(run.norm_table);
  const std::vector<double>& own = run.norm_table->rows[0].values;
  const std::vector<double>& right = run.norm_table->rows[1].values;
  EXPECT_GT(own[0], right[0]);
  EXPECT_NEAR(own[2] / right[2], (right[0] + kClipEps) / (own[0] + kClipEps), 1e-12);
  EXPECT_GT(own[3], 1e-6);  // the others' first step
  EXPECT_FALSE(run.norm_verdict) << "a wrong gradient is not a wrong count";
}

}  // namespace
}  // namespace sumonce

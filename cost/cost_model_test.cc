#include "cost/cost_model.h"

#include <cmath>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

// Times that a ring of these constants takes, each off by up to `noise`.
std::vector<CostPoint> RingTimes(const std::vector<int>& ranks, double latency, double per_byte,
                                 double noise = 0) {
  std::vector<CostPoint> points;
  int64_t number = 0;
  for (const int n : ranks) {
    for (int64_t bytes = 4; bytes <= (int64_t{64} << 20); bytes *= 4) {
      const double exact =
          2.0 * (n - 1) * latency + 2.0 * (n - 1) / n * static_cast<double>(bytes) * per_byte;
      // A sequence that fills [-1, 1) evenly.
      const double off = 2 * std::fmod(0.6180339887498949 * static_cast<double>(++number), 1) - 1;
      points.push_back({n, bytes, exact * (1 + noise * off)});
    }
  }
  return points;
}

TEST(CostModel, StepsAndWireBytesAreTheTextbookOnes) {
  EXPECT_EQ(Steps(CallKind::kAllReduce, CostAlgorithm::kRing, 4), 6);
  EXPECT_EQ(Steps(CallKind::kAllReduce, CostAlgorithm::kTree, 5), 6);
  EXPECT_EQ(Steps(CallKind::kAllGather, CostAlgorithm::kRing, 4), 3);
  EXPECT_EQ(WireBytesPerByte(CallKind::kAllReduce, CostAlgorithm::kRing, 4), 1.5);
  EXPECT_EQ(WireBytesPerByte(CallKind::kReduceScatter, CostAlgorithm::kTree, 4), 0.75);
  EXPECT_EQ(Steps(CallKind::kAllReduce, CostAlgorithm::kRing, 1), 0);
}

TEST(CostModel, FindsTheConstantsOfARing) {
  const CostModel model = *FitCostModel(CallKind::kAllReduce, RingTimes({2, 4, 8}, 1e-6, 2e-10));
  EXPECT_EQ(model.algorithm, CostAlgorithm::kRing);
  EXPECT_NEAR(model.link.seconds_per_step, 1e-6, 1e-9);
  EXPECT_LT(model.residual, 1e-6);
  // 1,024 ranks, 1 MiB: 2046 steps and 2046/1024 MiB.
  const CostEstimate estimate = Predict(model, 1024, 1 << 20);
  EXPECT_NEAR(estimate.seconds, 2046e-6 + 2046.0 / 1024 * (1 << 20) * 2e-10, 1e-6);
  EXPECT_TRUE(estimate.extrapolated);
  EXPECT_FALSE(Predict(model, 4, 1 << 20).extrapolated);
}

TEST(CostModel, TimePerByteMayChangeWithTheSize) {
  std::vector<CostPoint> points = RingTimes({2}, 1e-6, 1e-10);
  for (CostPoint& point : points) {
    const double beyond = std::max<double>(static_cast<double>(point.bytes) - (1 << 20), 0);
    point.seconds += beyond * 3e-10;  // past the cache: four times as slow
  }
  const CostModel model = *FitCostModel(CallKind::kAllReduce, points);
  EXPECT_LT(model.residual, 0.02);
  EXPECT_NEAR(Predict(model, 2, 8 << 20).seconds, 2e-6 + (8 << 20) * 1e-10 + (7 << 20) * 3e-10,
              1e-4);
}

// What the bar promises, on sizes that the fit has not seen.
TEST(CostModel, NineOfTenHeldOutSizesLieInsideTheBar) {
  const std::vector<CostPoint> all = RingTimes({2, 4, 8}, 1e-6, 2e-10, 0.1);
  std::vector<CostPoint> fitted, held_out;
  for (size_t i = 0; i < all.size(); ++i) (i % 3 == 1 ? held_out : fitted).push_back(all[i]);
  const CostModel model = *FitCostModel(CallKind::kAllReduce, fitted);
  EXPECT_GT(model.bar, 0.02);
  EXPECT_LT(model.bar, 0.3);
  int inside = 0;
  for (const CostPoint& point : held_out) {
    const CostEstimate estimate = Predict(model, point.ranks, point.bytes);
    inside += estimate.low <= point.seconds && point.seconds <= estimate.high;
  }
  EXPECT_GE(inside, static_cast<int>(0.9 * static_cast<double>(held_out.size())));
}

// A time is off by a factor: a size that took four times as long is outside any bar below 3.
TEST(CostModel, TheBarReachesASizeThatWasSlow) {
  std::vector<CostPoint> points = RingTimes({2}, 1e-6, 2e-10);
  CostPoint& slow = points[points.size() / 2];
  slow.seconds *= 4;
  const CostModel model = *FitCostModel(CallKind::kAllReduce, points);
  const CostEstimate estimate = Predict(model, 2, slow.bytes);
  EXPECT_LE(slow.seconds, estimate.high);
  EXPECT_LT(estimate.seconds, slow.seconds / 2) << "the fit follows the others";
}

TEST(CostModel, RanksThatFollowNoModelWidenTheBar) {
  std::vector<CostPoint> points = RingTimes({2, 4, 8}, 1e-6, 2e-10);
  for (CostPoint& point : points) point.seconds *= point.ranks == 8 ? 3 : 1;
  const CostModel model = *FitCostModel(CallKind::kAllReduce, points);
  EXPECT_GT(model.rank_error, 0.5);
  const CostEstimate estimate = Predict(model, 16, 1 << 20);
  EXPECT_GT(estimate.high, 1.5 * estimate.seconds);
}

TEST(CostModel, TwoLevelsSendSlicesBetweenNodes) {
  const CostModel model = *FitCostModel(CallKind::kAllReduce, RingTimes({2, 4, 8}, 1e-6, 2e-10));
  const CostModel nodes = WithNodes(model, 8, 5e-6, 50e9);
  EXPECT_NEAR(Predict(nodes, 8, 1 << 20).seconds, Predict(model, 8, 1 << 20).seconds, 1e-12);
  const double between = 2 * 127 * 5e-6 + 2.0 * 127 / 128 * (1 << 20) / 8 / 50e9;
  EXPECT_NEAR(Predict(nodes, 1024, 1 << 20).seconds, Predict(model, 8, 1 << 20).seconds + between,
              1e-9);
}

TEST(CostModel, RefusesWhatCannotBeFitted) {
  EXPECT_THAT(std::string(FitCostModel(CallKind::kAllReduce, {{2, 4, 1e-6}}).status().message()),
              testing::HasSubstr("4 sizes or more, got 1"));
  EXPECT_THAT(std::string(FitCostModel(CallKind::kAllReduce, {{1, 4, 1e-6}}).status().message()),
              testing::HasSubstr("1 ranks"));
  EXPECT_FALSE(FitCostModel(CallKind::kAllReduce, {{2, 4, 0}}).ok());
}

}  // namespace
}  // namespace sumonce

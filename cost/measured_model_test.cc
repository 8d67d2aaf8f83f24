#include "cost/measured_model.h"

#include "cost/traffic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sim/scenario_reader.h"

namespace sumonce {
namespace {

using testing::HasSubstr;

Scenario Shipped(const std::string& name) {
  const std::string path = std::string(SUMONCE_SOURCE_DIR "/scenarios/") + name + ".textproto";
  return ReadScenario(path, name, {}).scenario;
}

CostModel OneMicrosecondAStep() {
  std::vector<CostPoint> points;
  for (const int ranks : {2, 4, 8}) {
    for (int64_t bytes = 4; bytes <= 1 << 20; bytes *= 4) {
      points.push_back(
          {ranks, bytes, 2.0 * (ranks - 1) * (1e-6 + static_cast<double>(bytes) * 1e-10 / ranks)});
    }
  }
  return *FitCostModel(CallKind::kAllReduce, points);
}

CureCost CostOf(const Scenario& scenario, int ranks = 0) {
  std::vector<Edit> cured = scenario.defects;
  cured.insert(cured.end(), scenario.cures.begin(), scenario.cures.end());
  if (scenario.cures.empty()) cured.clear();
  return CostOfCure(scenario, scenario.defects, cured, OneMicrosecondAStep(), ranks);
}

// The replica of a row target alone: [16, 4], one list more, and 2 (4 - 1) steps.
TEST(CostOfCure, AMissingSumCostsACallOfTheReplicasBytes) {
  const Scenario scenario = Shipped("lora/row_flag_missing");
  ASSERT_EQ(scenario.mesh.tp, 4);
  const CureCost cost = CostOf(scenario);
  EXPECT_EQ(cost.calls, 1);
  EXPECT_EQ(cost.bytes, 16 * 4 * 4);
  EXPECT_NEAR(cost.seconds, 6e-6, 1e-6);
  EXPECT_FALSE(cost.extrapolated);
  const CureCost large = CostOf(scenario, 1024);
  EXPECT_NEAR(large.seconds, 2046e-6, 100e-6);
  EXPECT_TRUE(large.extrapolated);
}

// The gamma travelled in a list that the other norms need anyway.
TEST(CostOfCure, ASumTooManySavesBytesButNoCall) {
  const CureCost cost = CostOf(Shipped("gdn/gamma_flagged"));
  EXPECT_EQ(cost.calls, 0);
  EXPECT_LT(cost.bytes, 0);
  EXPECT_LE(cost.seconds, 0);
  EXPECT_LT(cost.error, 1e-6);
}

TEST(CostModelFile, ReadsWhatItWrote) {
  const CostModel model = OneMicrosecondAStep();
  const auto read = CostModelFromJson(CostModelToJson(model, "in_process threads"));
  ASSERT_TRUE(read.ok()) << read.status();
  for (const int ranks : {2, 8, 1024}) {
    EXPECT_EQ(Predict(*read, ranks, 12345).seconds, Predict(model, ranks, 12345).seconds);
    EXPECT_EQ(Predict(*read, ranks, 12345).high, Predict(model, ranks, 12345).high);
  }
}

TEST(CostModelFile, SaysWhatIsWrong) {
  const auto message = [](const std::string& text) {
    return std::string(CostModelFromJson(text).status().message());
  };
  EXPECT_THAT(message(""), HasSubstr("byte 1: no JSON; expected a cost model"));
  EXPECT_THAT(message("[1, 2"), HasSubstr("byte 6: no JSON"));
  EXPECT_THAT(message("{}"), HasSubstr("sumonce_cost_model"));
  EXPECT_THAT(message("{\"sumonce_cost_model\": 99}"), HasSubstr("another version"));
  std::string text = CostModelToJson(OneMicrosecondAStep(), "x");
  const size_t at = text.find("\"ring\"");
  ASSERT_NE(at, text.npos);
  EXPECT_THAT(message(text.replace(at, 6, "\"star\"")), HasSubstr("expected ring or tree"));
}

TEST(HeldOut, LeavesEveryThirdSizeOut) {
  std::vector<CostPoint> points;
  for (int64_t bytes = 4; bytes <= 1 << 20; bytes *= 2)
    points.push_back({2, bytes, 2e-6 + static_cast<double>(bytes) * 1e-10});
  const HeldOut held = CheckHeldOut(CallKind::kAllReduce, points);
  EXPECT_EQ(held.points, 6);
  EXPECT_LT(held.median_error, 1e-3);
  EXPECT_EQ(CheckHeldOut(CallKind::kAllReduce, std::vector<CostPoint>(3, {2, 4, 1e-6})).points, 0);
}

TEST(FinalizerCalls, ListsTravelCoalescedBucketedOrOneByOne) {
  const FinalizerCall call{
      .rule = "r", .group = "tp", .ranks = 2, .params = {"a", "b", "c"}, .elements = {3, 4, 5}};
  EXPECT_EQ(CallSizes(call, Bucketing::kCoalesced), (std::vector<int64_t>{12}));
  EXPECT_EQ(CallSizes(call, Bucketing::kPerParameter), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(CallSizes(call, Bucketing::kBucketed, 6), (std::vector<int64_t>{7, 5}));
}

}  // namespace
}  // namespace sumonce

// What a simulation is said to keep, beside what its record holds.
#include "verify/memory_estimate.h"

#include <gtest/gtest.h>

#include <set>

#include "sim/simulator.h"
#include "tests/system/shipped.h"
#include "verify/run_once.h"

namespace sumonce {
namespace {

// Bytes of the distinct arrays that the ranks' record keeps.
class RecordBytes {
 public:
  explicit RecordBytes(const RunRecord& record) {
    for (const RankRecords& rank : record.ranks) {
      for (const StepRecord& step : rank) {
        for (const auto& [name, param] : step.params) Add(param);
      }
    }
  }
  double bytes() const { return bytes_; }

 private:
  void Add(const ParamRecord& param) {
    for (const Tensor& tensor : param.terms) Add(tensor);
    for (const auto& [operation, tensor] : param.uses) Add(tensor);
    for (const Tensor& tensor : param.after) Add(tensor);
    for (const Tensor* tensor : {&param.contribution, &param.weight_before, &param.weight_after})
      Add(*tensor);
  }
  void Add(const Tensor& tensor) {
    if (tensor.empty() || !seen_.insert(tensor.data()).second) return;
    bytes_ += 8.0 * static_cast<double>(tensor.count());
  }

  std::set<const double*> seen_;
  double bytes_ = 0;
};

// Gradients and moments come to it, the reference, and a second run where a cure is tried.
TEST(MemoryEstimate, IsMoreThanTheRecordAndNotManyTimes) {
  for (const char* name :
       {"lora/row_flag_missing", "clip/lora", "gdn/upstream", "mla/replicated_down_projections"}) {
    const Scenario scenario = testing::Shipped(name);
    const RunOnce run = RunScenarioOnce(scenario, scenario.defects, SimOptions());
    ASSERT_TRUE(run.run_status.ok()) << run.run_status;
    const double recorded = RecordBytes(run.record).bytes();
    const double estimated = EstimateMemory(scenario).parameters;
    EXPECT_GT(estimated, recorded) << name;
    EXPECT_LT(estimated, 6 * recorded) << name;
  }
}

// Twice the sequence has twice the values on the tape, and more where every position meets every
// other; the parameters stay.
TEST(MemoryEstimate, FollowsTheSizes) {
  Scenario scenario = testing::Shipped("lora/row_flag_missing");
  const MemoryEstimate once = EstimateMemory(scenario);
  scenario.data.sequence *= 2;
  const MemoryEstimate longer = EstimateMemory(scenario);
  EXPECT_EQ(longer.parameters, once.parameters);
  EXPECT_GT(longer.activations, 1.5 * once.activations);
  EXPECT_EQ(longer.data, 2 * once.data);
  scenario.mesh.dp *= 2;
  const MemoryEstimate wider = EstimateMemory(scenario);
  EXPECT_GT(wider.parameters, 1.3 * longer.parameters);
  EXPECT_EQ(wider.data, 2 * longer.data);
}

}  // namespace
}  // namespace sumonce

// Mixed precision: what is stored is rounded where Megatron-Core rounds it, and nowhere else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/transport.h"
#include "sim/finalize/finalizer.h"
#include "tests/system/shipped.h"
#include "verify/run_once.h"

namespace sumonce {
namespace {

// What every rank holds after the data-parallel step, one parameter of one element.
std::vector<double> Reduced(const std::vector<double>& grads, bool per_token, DType dtype) {
  const int ranks = static_cast<int>(grads.size());
  const Mesh mesh = *Mesh::Create({.dp = ranks});
  const FinalizePreset preset = *Finalizers().Find("megatron_core_0_16");
  std::vector<double> results(grads.size());
  const absl::Status status =
      (*Transports().Find("in_process"))->run({.world_size = ranks}, [&](Communicator& world) {
        absl::StatusOr<GroupComms> comms =
            GroupComms::Create(world, mesh, {mesh.GroupOf(Axis::kDp)});
        if (!comms.ok()) return comms.status();
        std::deque<Param> params(1);
        params[0].main_grad = Tensor({Plain(Dim::kOut, 1)}, {grads[world.rank()]});
        const absl::Status run = RunFinalizeStep(preset.steps[0], {.per_token_loss = per_token},
                                                 mesh, world.rank(), &*comms, 0, dtype, params);
        results[world.rank()] = params[0].main_grad.data()[0];
        return run;
      });
  EXPECT_TRUE(status.ok()) << status;
  return results;
}

// bf16 numbers behind 256 are 2 apart, and 257 is half way between two: to the even one.
TEST(MixedPrecision, ReductionsRoundToTheTypeOfMainGrad) {
  using ::testing::Each;
  EXPECT_THAT(Reduced({256, 1}, true, DType::kBFloat16), Each(256.0));
  EXPECT_THAT(Reduced({256, 1}, true, DType::kFloat32), Each(257.0));
  EXPECT_THAT(Reduced({0x1p24, 1}, true, DType::kFloat32), Each(0x1p24));
  EXPECT_THAT(Reduced({0x1p24, 1}, true, DType::kFloat64), Each(0x1p24 + 1));
  // Times 1/3 first, in the buffer's type: 1/3 in bf16 is 0.333984375, and three of them are no 1.
  EXPECT_THAT(Reduced({1, 0, 0}, false, DType::kBFloat16), Each(0.333984375));
  EXPECT_THAT(Reduced({1, 0, 0}, false, DType::kFloat32), Each(static_cast<double>(1.0f / 3.0f)));
}

bool AllOf(DType dtype, const Tensor& tensor) {
  for (const double value : tensor.values()) {
    if (RoundedTo(dtype, value) != value) return false;
  }
  return true;
}

// Each microbatch's gradient is bf16, and main_grad their sum, rounded behind every addition.
void ExpectStored(const ParamRecord& param, DType main_grad, const std::string& name) {
  SCOPED_TRACE(name);
  ASSERT_EQ(param.terms.size(), 2u);
  for (const Tensor& term : param.terms) EXPECT_TRUE(AllOf(DType::kBFloat16, term));
  for (int64_t i = 0; i < param.contribution.count(); ++i) {
    const double first = param.terms[0].data()[i], second = param.terms[1].data()[i];
    ASSERT_EQ(param.contribution.data()[i], RoundedTo(main_grad, first + second)) << i;
  }
  for (const Tensor& after : param.after) EXPECT_TRUE(AllOf(main_grad, after));
  EXPECT_TRUE(AllOf(DType::kBFloat16, param.weight_before));
  EXPECT_TRUE(AllOf(DType::kBFloat16, param.weight_after));
}

TEST(MixedPrecision, MicrobatchesAddUpInTheTypeOfMainGrad) {
  for (const bool in_fp32 : {false, true}) {
    Scenario scenario = testing::Shipped("precision/bf16_gradients");
    scenario.precision.grad_reduce_in_fp32 = in_fp32;
    const RunOnce run = RunScenarioOnce(scenario, {}, SimOptions());
    ASSERT_TRUE(run.run_status.ok()) << run.run_status;
    const DType main_grad = in_fp32 ? DType::kFloat32 : DType::kBFloat16;
    int finer = 0;  // parameters with a sum that bf16 cannot hold
    for (const RankRecords& rank : run.record.ranks) {
      for (const StepRecord& step : rank) {
        for (const auto& [name, param] : step.params) {
          if (param.contribution.empty()) continue;
          ExpectStored(param, main_grad, name);
          finer += !AllOf(DType::kBFloat16, param.contribution);
        }
      }
    }
    EXPECT_EQ(finer > 0, in_fp32);
    for (const auto& [name, verdict] : run.numbers)
      EXPECT_EQ(verdict.outcome, Outcome::kRight) << name;
  }
}

// The bound of bf16 is wide, but no factor of a rank's sum hides in it.
TEST(MixedPrecision, AMissingSumIsSeenInBf16) {
  Scenario scenario = testing::Shipped("precision/main_weights");
  for (const bool in_fp32 : {false, true}) {
    scenario.precision.grad_reduce_in_fp32 = in_fp32;
    const RunOnce run = RunScenarioOnce(scenario, scenario.defects, SimOptions());
    EXPECT_THAT(run.disagreements, ::testing::IsEmpty());
    int wrong = 0;
    for (const auto& [name, verdict] : run.numbers)
      wrong += verdict.mechanism == Mechanism::kMissingSum;
    EXPECT_EQ(wrong, 1) << "in fp32: " << in_fp32;
  }
}

}  // namespace
}  // namespace sumonce

#include "spmd/ops/linear.h"

#include "gtest/gtest.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

const DimExtent kRowsOfX = Plain(Dim::kSequence, 2), kInputs = Plain(Dim::kHidden, 2),
                kOutputs = Plain(Dim::kLoraRank, 3);
const std::vector<double> kXValues = {1, 2, 3, 4};             // [s, h]
const std::vector<double> kWeightValues = {1, 0, 0, 1, 2, 3};  // [r, h]
const std::vector<double> kYValues = {1, 2, 8, 3, 4, 18};      // x W^T: [s, r]

std::vector<double> Values(const Tensor& tensor) {
  return {tensor.values().begin(), tensor.values().end()};
}

// A weight [out, in] and its transpose [in, out] give the same product.
TEST(Linear, ContractsTheTrailingOrTheLeadingDimensionsOfTheWeight) {
  const Tensor x({kRowsOfX, kInputs}, kXValues);
  EXPECT_EQ(Values(testing::RunForward(LinearOperation(),
                                       {x, Tensor({kOutputs, kInputs}, kWeightValues)})),
            kYValues);
  const Tensor transposed({kInputs, kOutputs}, {1, 0, 2, 0, 1, 3});
  EXPECT_EQ(Values(testing::RunForward(LinearOperation(), {x, transposed})), kYValues);
}

std::string Refusal(const Dims& x, const Dims& weight) {
  const std::vector<Dims> operands = {x, weight};
  const absl::Status status = LinearOperation().Declare(operands).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// What a dropped gather of x runs into.
TEST(Linear, RefusesAShardAgainstTheWhole) {
  EXPECT_EQ(Refusal({kRowsOfX, Plain(Dim::kHidden, 4)}, {kOutputs, Plain(Dim::kHidden, 8)}),
            "Linear: x [s=2, h=4] and weight [r=3, h=8] do not contract: the dimensions that both "
            "have must end x and end or begin the weight, in the same order, with equal units, "
            "parts and packing");
}

TEST(Linear, RefusesNoSharedDimensionAnotherOrderAndAnotherPacking) {
  const DimExtent d = Plain(Dim::kHeadDim, 2);
  const DimExtent unit_major = {Dim::kFfn, 2, {1, 1}, Packing::kUnitMajor};
  const DimExtent part_major = {Dim::kFfn, 2, {1, 1}, Packing::kPartMajor};
  EXPECT_NE(Refusal({kRowsOfX, kInputs}, {kOutputs}), "");
  EXPECT_NE(Refusal({kRowsOfX, kInputs, d}, {kOutputs, d, kInputs}), "");
  EXPECT_NE(Refusal({kRowsOfX, unit_major}, {kOutputs, part_major}), "");
  EXPECT_NE(Refusal({kInputs, kRowsOfX}, {kOutputs, kInputs}), "");
}

}  // namespace
}  // namespace sumonce

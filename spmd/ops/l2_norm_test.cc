#include "spmd/ops/l2_norm.h"

#include "gmock/gmock.h"
#include "tests/golden.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

using testing::Golden;
using testing::kSequenceFirst;

// The case holds a zero row and a tiny one, where the place of eps decides the gain.
TEST(L2Norm, MatchesGolden) {
  const Golden golden("l2norm");
  const Dims dims = {Plain(Dim::kSequence, 7), Plain(Dim::kBatch, 2), Plain(Dim::kKeyHead, 3),
                     Plain(Dim::kHeadDim, 8)};
  const L2NormOperation operation{L2NormOptions()};
  const Tensor x = golden.Get("in.x", dims, kSequenceFirst);
  EXPECT_TRUE(golden.Matches(testing::RunForward(operation, {x}), "out.y", kSequenceFirst));
  const auto grads =
      testing::RunBackward(operation, {x}, golden.Get("up.out.y", dims, kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[0], "grad.in.x", kSequenceFirst));
}

TEST(L2Norm, RefusesAnotherLastDimension) {
  const absl::Status status =
      L2NormOperation{L2NormOptions()}
          .Declare({{Dims{Plain(Dim::kSequence, 4), Plain(Dim::kHidden, 8)}}})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "L2Norm: x is [s=4, h=8], expected [..., d]");
}

}  // namespace
}  // namespace sumonce

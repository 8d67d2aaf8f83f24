#include "spmd/ops/rms_norm.h"

#include "gtest/gtest.h"
#include "tests/golden.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

using testing::Golden;
using testing::kSequenceFirst;

// Both cases hold rows whose mean square is near eps, where its place decides the value.
void MatchesGolden(const std::string& name, bool zero_centered) {
  const Golden golden(name);
  const Dims dims = {Plain(Dim::kSequence, 5), Plain(Dim::kBatch, 3), Plain(Dim::kHidden, 16)};
  RmsNormOptions options;
  options.zero_centered = zero_centered;
  const RmsNormOperation operation(options);
  const std::vector<Tensor> in = {golden.Get("in.x", dims, kSequenceFirst),
                                  golden.Get("param.weight", {dims[2]})};
  EXPECT_TRUE(golden.Matches(testing::RunForward(operation, in), "out.y", kSequenceFirst));
  const auto grads =
      testing::RunBackward(operation, in, golden.Get("up.out.y", dims, kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[0], "grad.in.x", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[1], "grad.param.weight"));
}

TEST(RmsNorm, PlainMatchesGolden) { MatchesGolden("rmsnorm", false); }
TEST(RmsNorm, ZeroCenteredMatchesGolden) { MatchesGolden("rmsnorm_zero_centered", true); }

// A hidden dimension that was not gathered: the weight is longer than the rank's rows.
TEST(RmsNorm, RefusesACutHiddenDimension) {
  const std::vector<Dims> cut = {{Plain(Dim::kSequence, 4), Plain(Dim::kHidden, 8)},
                                 {Plain(Dim::kHidden, 16)}};
  const absl::Status status = RmsNormOperation({}).Declare(cut).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "RmsNorm over h: weight [h=16] must be [h] and x [s=4, h=8] must end with the same "
            "extents");
}

}  // namespace
}  // namespace sumonce

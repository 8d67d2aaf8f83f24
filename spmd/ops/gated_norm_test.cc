#include "spmd/ops/gated_norm.h"

#include "tests/golden.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

using testing::Golden;
using testing::kSequenceFirst;

const DimExtent kEntries = Plain(Dim::kHeadDim, 8);
const Dims kO = {Plain(Dim::kSequence, 7), Plain(Dim::kBatch, 2), Plain(Dim::kKeyHead, 2),
                 Plain(Dim::kValueInKey, 2), kEntries};

TEST(GatedNorm, MatchesGolden) {
  const Golden golden("gated_rmsnorm");
  const GatedNormOperation operation{GatedNormOptions()};
  const std::vector<Tensor> in = {golden.Get("in.x", kO, kSequenceFirst),
                                  golden.Get("in.z", kO, kSequenceFirst),
                                  golden.Get("param.weight", {kEntries})};
  EXPECT_TRUE(golden.Matches(testing::RunForward(operation, in), "out.y", kSequenceFirst));
  const std::vector<Tensor> grads =
      testing::RunBackward(operation, in, golden.Get("up.out.y", kO, kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[0], "grad.in.x", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[1], "grad.in.z", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[2], "grad.param.weight"));
}

TEST(GatedNorm, RefusesAWeightOfAnotherWidth) {
  const std::vector<Dims> operands = {kO, kO, {Plain(Dim::kHeadDim, 4)}};
  const absl::Status status = GatedNormOperation{GatedNormOptions()}.Declare(operands).status();
  EXPECT_EQ(status.message(), "GatedNorm: weight is [d=4], expected [d=8], the entries of a head");
}

}  // namespace
}  // namespace sumonce

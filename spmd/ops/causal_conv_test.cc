#include "spmd/ops/causal_conv.h"

#include "spmd/ops/add_bias.h"
#include "spmd/ops/silu.h"
#include "tests/golden.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

using testing::Golden;
using testing::kSequenceFirst;

const DimExtent kChannels = Plain(Dim::kKeyHead, 6);
const Dims kConvInput = {Plain(Dim::kSequence, 11), Plain(Dim::kBatch, 2), kChannels};
const Dims kWeight = {kChannels, Plain(Dim::kTap, 4)};

// The stored cases have SiLU behind the convolution.
TEST(CausalConv, ThenSiluMatchesGolden) {
  const Golden golden("conv1d_silu");
  const CausalConvOperation conv;
  const SiluOperation silu;
  const std::vector<Tensor> in = {golden.Get("in.x", kConvInput, kSequenceFirst),
                                  golden.Get("param.weight", kWeight)};
  const Tensor convolved = testing::RunForward(conv, in);
  EXPECT_TRUE(golden.Matches(testing::RunForward(silu, {convolved}), "out.y", kSequenceFirst));
  const Tensor grad_convolved = testing::RunBackward(
      silu, {convolved}, golden.Get("up.out.y", kConvInput, kSequenceFirst))[0];
  const std::vector<Tensor> grads = testing::RunBackward(conv, in, grad_convolved);
  EXPECT_TRUE(golden.Matches(grads[0], "grad.in.x", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[1], "grad.param.weight"));
}

// Bias and carried tokens; packed sequences.
TEST(CausalConv, WithBiasAndCarriedTokensMatchesGolden) {
  const Golden golden("conv1d_silu_bias_state");
  const CausalConvOperation conv;
  const AddBiasOperation add_bias;
  const SiluOperation silu;
  const Dims few = {Plain(Dim::kSequence, 5), Plain(Dim::kBatch, 2), kChannels};
  const Dims carried = {Plain(Dim::kSequence, 3), Plain(Dim::kBatch, 2), kChannels};
  const std::vector<Tensor> in = {golden.Get("in.x", few, kSequenceFirst),
                                  golden.Get("param.weight", kWeight),
                                  golden.Get("in.prev", carried, kSequenceFirst)};
  const std::vector<Tensor> biased = {testing::RunForward(conv, in),
                                      golden.Get("param.bias", {kChannels})};
  const Tensor sum = testing::RunForward(add_bias, biased);
  EXPECT_TRUE(golden.Matches(testing::RunForward(silu, {sum}), "out.y", kSequenceFirst));
  const Tensor grad_sum =
      testing::RunBackward(silu, {sum}, golden.Get("up.out.y", few, kSequenceFirst))[0];
  const std::vector<Tensor> grad_biased = testing::RunBackward(add_bias, biased, grad_sum);
  const std::vector<Tensor> grads = testing::RunBackward(conv, in, grad_biased[0]);
  EXPECT_TRUE(golden.Matches(grad_biased[1], "grad.param.bias"));
  EXPECT_TRUE(golden.Matches(grads[0], "grad.in.x", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[1], "grad.param.weight"));
  EXPECT_TRUE(golden.Matches(grads[2], "grad.in.prev", kSequenceFirst));
}

TEST(CausalConv, OverPackedSequencesMatchesGolden) {
  const Golden golden("conv1d_silu_packed");
  const CausalConvOperation conv(testing::Starts(golden));
  const SiluOperation silu;
  const Dims packed = {Plain(Dim::kSequence, 12), Plain(Dim::kBatch, 1), kChannels};
  const std::vector<Tensor> in = {golden.Get("in.x", packed, kSequenceFirst),
                                  golden.Get("param.weight", kWeight)};
  const Tensor convolved = testing::RunForward(conv, in);
  EXPECT_TRUE(golden.Matches(testing::RunForward(silu, {convolved}), "out.y", kSequenceFirst));
  const Tensor grad_convolved =
      testing::RunBackward(silu, {convolved}, golden.Get("up.out.y", packed, kSequenceFirst))[0];
  const std::vector<Tensor> grads = testing::RunBackward(conv, in, grad_convolved);
  EXPECT_TRUE(golden.Matches(grads[0], "grad.in.x", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[1], "grad.param.weight"));
}

// More taps than tokens: only the last taps meet a token.
TEST(CausalConv, LastTapMeetsTheCurrentToken) {
  const DimExtent channel = Plain(Dim::kKeyHead, 1);
  const Tensor x({Plain(Dim::kSequence, 2), Plain(Dim::kBatch, 1), channel}, {3.0, 5.0});
  const Tensor weight({channel, Plain(Dim::kTap, 4)}, {1.0, 10.0, 100.0, 1000.0});
  const Tensor y = testing::RunForward(CausalConvOperation(), {x, weight});
  EXPECT_EQ(y.data()[0], 3000.0);
  EXPECT_EQ(y.data()[1], 5300.0);
}

// The same number of channels in another packing would be silently permuted.
TEST(CausalConv, RefusesAWeightOfAnotherPacking) {
  const DimExtent channels = {
      .dim = Dim::kKeyHead, .units = 2, .parts = {2, 1}, .packing = Packing::kUnitMajor};
  DimExtent other = channels;
  other.packing = Packing::kPartMajor;
  const std::vector<Dims> operands = {{Plain(Dim::kSequence, 4), Plain(Dim::kBatch, 1), channels},
                                      {other, Plain(Dim::kTap, 4)}};
  const absl::Status status = CausalConvOperation().Declare(operands).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "CausalConv: weight is [k=2x(2|1), t=4], expected [channels, t] with the channels of x = "
      "[s=4, b=1, k=2x(2,1)]");
}

}  // namespace
}  // namespace sumonce

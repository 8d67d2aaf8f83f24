#include "spmd/ops/gdn_decay.h"

#include "spmd/ops/sigmoid.h"
#include "tests/golden.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

using testing::Golden;
using testing::kSequenceFirst;

const Dims kDecayHeads = {Plain(Dim::kKeyHead, 2), Plain(Dim::kValueInKey, 2)};
const Dims kA = {Plain(Dim::kSequence, 9), Plain(Dim::kBatch, 2), kDecayHeads[0], kDecayHeads[1]};

TEST(GdnDecay, MatchesGolden) {
  const Golden golden("gdn_gates");
  const GdnDecayOperation operation;
  const std::vector<Tensor> in = {golden.Get("in.a", kA, kSequenceFirst),
                                  golden.Get("param.A_log", kDecayHeads),
                                  golden.Get("param.dt_bias", kDecayHeads)};
  EXPECT_TRUE(golden.Matches(testing::RunForward(operation, in), "out.g", kSequenceFirst));
  const std::vector<Tensor> grads =
      testing::RunBackward(operation, in, golden.Get("up.out.g", kA, kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[0], "grad.in.a", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[1], "grad.param.A_log"));
  EXPECT_TRUE(golden.Matches(grads[2], "grad.param.dt_bias"));
}

TEST(Sigmoid, MatchesGoldenBeta) {
  const Golden golden("gdn_gates");
  const SigmoidOperation operation;
  const Tensor b = golden.Get("in.b", kA, kSequenceFirst);
  EXPECT_TRUE(golden.Matches(testing::RunForward(operation, {b}), "out.beta", kSequenceFirst));
  const auto grads =
      testing::RunBackward(operation, {b}, golden.Get("up.out.beta", kA, kSequenceFirst));
  EXPECT_TRUE(golden.Matches(grads[0], "grad.in.b", kSequenceFirst));
}

// Above 20 softplus is the identity and its derivative exactly 1, though sigmoid(21) is not.
TEST(GdnDecay, IsLinearAboveTheCutOff) {
  const Dims head = {Plain(Dim::kKeyHead, 1), Plain(Dim::kValueInKey, 1)};
  const Dims a = {Plain(Dim::kSequence, 1), Plain(Dim::kBatch, 1), head[0], head[1]};
  const std::vector<Tensor> in = {Tensor(a, {20.5}), Tensor(head, {0.0}), Tensor(head, {0.5})};
  EXPECT_EQ(testing::RunForward(GdnDecayOperation(), in).data()[0], -21.0);
  EXPECT_EQ(testing::RunBackward(GdnDecayOperation(), in, Tensor(a, {1.0}))[0].data()[0], -1.0);
}

TEST(GdnDecay, RefusesParametersOfOtherHeads) {
  const std::vector<Dims> operands = {
      kA, kDecayHeads, {kDecayHeads[0], Plain(Dim::kValueInKey, 3)}};
  const absl::Status status = GdnDecayOperation().Declare(operands).status();
  EXPECT_EQ(status.message(),
            "GdnDecay: dt_bias is [k=2, j=3], expected [k=2, j=2], the heads of a");
}

}  // namespace
}  // namespace sumonce

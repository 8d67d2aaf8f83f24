#include "layers/norm/rms_norm.h"

#include "gmock/gmock.h"
#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

using ::testing::HasSubstr;

LayerCase Norm(int64_t hidden, const Tensor& x, const Tensor& up) {
  LayerCase setup = {.x = x, .up = up};
  setup.build = [hidden](const Builder& builder) {
    auto norm = std::make_shared<RmsNormLayer>(builder.Child("norm"), hidden);
    return [norm](Tape& tape, Value value) { return norm->Forward(tape, value); };
  };
  return setup;
}

LayerCase RandomNorm() {
  const Dims dims = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kHidden, 6)};
  return Norm(6, Random("x", dims), Random("up", dims));
}

void ExpectGolden(const std::string& file, NormKind kind) {
  const Golden golden(file);
  LayerCase setup = Norm(16, Activation(golden, "in.x", Dim::kHidden),
                         Activation(golden, "up.out.y", Dim::kHidden));
  setup.config.norm = kind;
  const Correspondence names = {{}, {{"norm.weight", "param.weight"}}};
  setup.weights = LoadWeights(golden, names);
  ExpectMatchesGolden(golden, names, RunLayer(setup));
}

TEST(RmsNormLayer, MatchesGolden) {
  ExpectGolden("rmsnorm", NormKind::kPlain);
  ExpectGolden("rmsnorm_zero_centered", NormKind::kZeroCentered);
}

TEST(RmsNormLayer, ItsWeightIsPartialOnOwnTokensAndCompleteOnAll) {
  ExpectReproducesUnsharded(RandomNorm(), /*sequence_parallel=*/true, {"norm.weight"});
  ExpectReproducesUnsharded(RandomNorm(), /*sequence_parallel=*/false, {});
  EXPECT_EQ(RunLayer(RandomNorm(), {.tp = 2}, true).StateText("norm.weight"), "tp: P(s)");
}

TEST(RmsNormLayer, IsMarkedAsTheConfigurationSays) {
  EXPECT_TRUE(
      RunLayer(RandomNorm(), {.tp = 2}, true).ranks[1].marks.at("norm.weight").sequence_parallel);
  EXPECT_FALSE(
      RunLayer(RandomNorm(), {.tp = 2}, false).ranks[1].marks.at("norm.weight").sequence_parallel);
}

TEST(RmsNormLayer, RefusesAnotherWidth) {
  LayerCase setup = RandomNorm();
  setup.build = Norm(7, setup.x, setup.up).build;
  EXPECT_THAT(std::string(RunLayer(setup).status.message()), HasSubstr("norm/RmsNorm#0: RmsNorm"));
}

}  // namespace
}  // namespace sumonce::testing

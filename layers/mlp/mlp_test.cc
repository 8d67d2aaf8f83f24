#include "layers/mlp/mlp.h"

#include "gmock/gmock.h"
#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

using ::testing::HasSubstr;

LayerCase WithConfig(const MlpConfig& config, const Tensor& x, const Tensor& up) {
  LayerCase setup = {.x = x, .up = up};
  setup.build = [config](const Builder& builder) {
    auto mlp = std::make_shared<Mlp>(builder.Child("mlp"), config);
    return [mlp](Tape& tape, Value value) { return mlp->Forward(tape, value); };
  };
  return setup;
}

LoraConfig Lora(int64_t r) {
  return {.enabled = true, .r = r, .targets = {"linear_fc1", "linear_fc2"}};
}

LayerCase RandomMlp(MlpActivation activation) {
  const Dims dims = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kHidden, 6)};
  MlpConfig config = {.hidden = 6, .ffn = 12, .activation = activation};
  LayerCase setup = WithConfig(config, Random("x", dims), Random("up", dims));
  setup.config.lora = Lora(3);
  setup.config.train_base = true;
  return setup;
}

TEST(Mlp, MatchesGoldenWithAdaptersOnAllThreeProjections) {
  const Golden golden("swiglu_mlp_lora");
  const MlpConfig config = {.hidden = 12, .ffn = 20, .layer_norm = false};
  LayerCase setup = WithConfig(config, Activation(golden, "in.x", Dim::kHidden),
                               Activation(golden, "up.out.y", Dim::kHidden));
  const Correspondence names = MlpNames(config, "mlp.", "param.");
  setup.config.lora = Lora(FusedRank(golden, names));
  setup.config.train_base = true;
  setup.weights = LoadWeights(golden, names);
  ExpectMatchesGolden(golden, names, RunLayer(setup));
  // [gate; up] of the rank's own features on each rank.
  ExpectMatchesGolden(golden, names, RunLayer(setup, {.tp = 2}));
}

// Each projection's adapter by itself, as Hugging Face and PEFT have them.
TEST(Mlp, MatchesGoldenWithAnAdapterOfEachSubProjection) {
  const Golden golden("swiglu_mlp_lora");
  const MlpConfig config = {.hidden = 12, .ffn = 20, .layer_norm = false};
  LayerCase setup = WithConfig(config, Activation(golden, "in.x", Dim::kHidden),
                               Activation(golden, "up.out.y", Dim::kHidden));
  const int64_t r = golden.Shape("param.gate_proj.lora_A")[0];
  setup.config.lora = Lora(r);
  setup.config.lora.per_sub_projection = true;
  setup.config.train_base = true;
  setup.weights = LoadWeights(golden, MlpNames(config, "mlp.", "param."));
  std::vector<std::pair<std::string, std::string>> names;
  for (const std::string factor : {"lora_A", "lora_B"}) {
    for (const std::string sub : {"gate_proj", "up_proj"})
      names.push_back({"mlp.linear_fc1." + sub + "." + factor, "param." + sub + "." + factor});
    names.push_back({"mlp.linear_fc2." + factor, "param.down_proj." + factor});
  }
  for (const auto& [ours, theirs] : names) setup.weights[ours] = Matrix(golden, theirs);
  for (const int tp : {1, 2}) {
    const Outcome outcome = RunLayer(setup, {.tp = tp});
    EXPECT_TRUE(golden.Matches(outcome.WholeY(), "out.y", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(outcome.Whole("x"), "grad.in.x", kSequenceFirst));
    for (const auto& [ours, theirs] : names)
      EXPECT_TRUE(golden.Matches(outcome.Whole(ours), "grad." + theirs)) << ours;
  }
}

struct ActivationCase {
  const char* file;
  MlpActivation activation;
  bool bias;
};

// Hugging Face's GPT-2 and Nemotron, and Megatron's own with the same activations.
TEST(Mlp, MatchesGoldenOfEveryActivation) {
  for (const ActivationCase& test : {ActivationCase{"mlp_gelu", MlpActivation::kGelu, true},
                                     {"mlp_gelu_tanh", MlpActivation::kGeluTanh, true},
                                     {"mlp_relu2", MlpActivation::kSquaredRelu, false}}) {
    const Golden golden(test.file);
    const MlpConfig config = {.hidden = 12,
                              .ffn = 20,
                              .activation = test.activation,
                              .bias = test.bias,
                              .layer_norm = false};
    // Seven tokens: cut over no rank.
    LayerCase setup = WithConfig(config, Activation(golden, "in.x", Dim::kHidden),
                                 Activation(golden, "up.out.y", Dim::kHidden));
    const Correspondence names = MlpNames(config, "mlp.", "param.");
    setup.weights = LoadWeights(golden, names);
    setup.config.train_base = true;
    ExpectMatchesGolden(golden, names, RunLayer(setup));
    ExpectMatchesGolden(golden, names, RunLayer(setup, {.tp = 2}));
  }
}

TEST(Mlp, ShardsReproduceTheUnsharded) {
  const std::vector<std::string> own_tokens = {"mlp.linear_fc1.layer_norm_weight",
                                               "mlp.linear_fc1.lora_A", "mlp.linear_fc2.lora_B"};
  for (const auto activation : {MlpActivation::kSwiglu, MlpActivation::kLinear}) {
    ExpectReproducesUnsharded(RandomMlp(activation), /*sequence_parallel=*/true, own_tokens);
    ExpectReproducesUnsharded(RandomMlp(activation), /*sequence_parallel=*/false, {});
  }
}

TEST(Mlp, RefusesAnotherWidth) {
  LayerCase setup = RandomMlp(MlpActivation::kSwiglu);
  setup.build = WithConfig({.hidden = 7, .ffn = 12, .layer_norm = false}, setup.x, setup.up).build;
  EXPECT_THAT(std::string(RunLayer(setup).status.message()), HasSubstr("mlp.linear_fc1/Linear#0"));
}

}  // namespace
}  // namespace sumonce::testing

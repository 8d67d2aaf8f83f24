#include "layers/decoder/decoder_layer.h"

#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

LayerCase WithConfig(const DecoderLayerConfig& config, const Tensor& x, const Tensor& up) {
  LayerCase setup = {.x = x, .up = up};
  setup.config.norm = NormKind::kZeroCentered;
  setup.config.train_base = true;
  setup.build = [config](const Builder& builder) {
    auto layer = std::make_shared<DecoderLayer>(builder.Child("block"), config);
    return [layer](Tape& tape, Value value) { return layer->Forward(tape, value); };
  };
  return setup;
}

void ExpectGolden(const std::string& file, const DecoderLayerConfig& config, Correspondence names) {
  const Golden golden(file);
  names.Append(MlpNames(*config.mlp, "block.mlp.", "param.mlp."));
  names.plain.push_back({config.pre_mlp_layernorm ? "block.pre_mlp_layernorm.weight"
                                                  : "block.mlp.linear_fc1.layer_norm_weight",
                         "param.post_attention_layernorm"});
  LayerCase setup = WithConfig(config, Activation(golden, "in.x", Dim::kHidden),
                               Activation(golden, "up.out.y", Dim::kHidden));
  setup.config.lora = LoraOnAllTargets(FusedRank(golden, names));
  setup.weights = LoadWeights(golden, names);
  for (const int tp : {1, 2}) {
    SCOPED_TRACE(file + " tp " + std::to_string(tp));
    ExpectMatchesGolden(golden, names, RunLayer(setup, {.tp = tp}));
  }
}

TEST(DecoderLayer, HybridBlockMatchesGolden) {
  const DecoderLayerConfig config = {.mixer = GatedDeltaNetConfig(), .mlp = MlpConfig()};
  Correspondence names =
      FlatGdnNames(GatedDeltaNetConfig(), "block.self_attention.", "param.linear_attn.");
  names.plain.push_back(
      {"block.self_attention.in_proj.layer_norm_weight", "param.input_layernorm"});
  ExpectGolden("hybrid_block", config, names);
  ExpectGolden("hybrid_block_lora", config, names);
}

// With the norms fused, and with norms of their own in front: the same numbers.
TEST(DecoderLayer, AttentionBlockMatchesGolden) {
  const Golden golden("attention_block_lora");
  for (const bool standalone : {false, true}) {
    SelfAttentionConfig attention = {.output_gate = true, .layer_norm = !standalone};
    const Tensor cos = Matrix(golden, "in.cos"), sin = Matrix(golden, "in.sin");
    attention.rope.cos.assign(cos.values().begin(), cos.values().end());
    attention.rope.sin.assign(sin.values().begin(), sin.values().end());
    Correspondence names = AttentionNames(attention, "block.self_attention.", "param.self_attn.");
    names.plain.push_back({standalone ? "block.input_layernorm.weight"
                                      : "block.self_attention.linear_qkv.layer_norm_weight",
                           "param.input_layernorm"});
    ExpectGolden("attention_block_lora",
                 {.mixer = attention,
                  .mlp = MlpConfig{.layer_norm = !standalone},
                  .input_layernorm = standalone,
                  .pre_mlp_layernorm = standalone},
                 names);
  }
}

// The decoupled norm runs on its own tokens in front of the gather: partial, and marked.
TEST(DecoderLayer, DecoupledInputNormStandsOutsideTheGatherRegion) {
  const GatedDeltaNetConfig gdn = {.mode = GdnMode::kGatherRegion, .decoupled_norm = true};
  const Dims dims = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kHidden, 16)};
  const LayerCase setup = WithConfig({.mixer = gdn}, Random("x", dims), Random("up", dims));
  const std::string norm = "block.input_layernorm.weight";
  const Outcome one = RunLayer(setup), two = RunLayer(setup, {.tp = 2}, true);
  EXPECT_EQ(two.StateText(norm), "tp: P(s)");
  EXPECT_TRUE(two.ranks[0].marks.at(norm).sequence_parallel);
  EXPECT_TRUE(AllClose(two.Whole(norm), one.Whole(norm)));
  EXPECT_TRUE(AllClose(two.Whole("x"), one.Whole("x")));
}

}  // namespace
}  // namespace sumonce::testing

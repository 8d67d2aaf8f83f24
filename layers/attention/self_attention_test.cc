#include "layers/attention/self_attention.h"

#include "gmock/gmock.h"
#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

using ::testing::HasSubstr;

LayerCase WithConfig(const SelfAttentionConfig& config, const Tensor& x, const Tensor& up) {
  LayerCase setup = {.x = x, .up = up};
  setup.build = [config](const Builder& builder) {
    auto attention = std::make_shared<SelfAttention>(builder.Child("self_attention"), config);
    return [attention](Tape& tape, Value value) { return attention->Forward(tape, value); };
  };
  return setup;
}

std::vector<double> Table(const Golden& golden, const std::string& name) {
  const Tensor table = Matrix(golden, name);
  return {table.values().begin(), table.values().end()};
}

void ExpectGolden(const std::string& file, SelfAttentionConfig config, NormKind norm, int tp) {
  SCOPED_TRACE(file + " tp " + std::to_string(tp));
  const Golden golden(file);
  config.layer_norm = false;
  config.rope.cos = Table(golden, "in.cos");
  config.rope.sin = Table(golden, "in.sin");
  LayerCase setup = WithConfig(config, Activation(golden, "in.x", Dim::kHidden),
                               Activation(golden, "up.out.y", Dim::kHidden));
  setup.config.norm = norm;
  const Correspondence names = AttentionNames(config, "self_attention.", "param.");
  setup.weights = LoadWeights(golden, names);
  ExpectMatchesGolden(golden, names, RunLayer(setup, {.tp = tp}));
}

TEST(SelfAttention, MatchesGolden) {
  const SelfAttentionConfig plain = {.head_dim = 8, .rope = {.rotary_dim = 8}};
  const SelfAttentionConfig gated = {
      .head_dim = 16, .rope = {.rotary_dim = 4}, .output_gate = true};
  for (const int tp : {1, 2}) {
    ExpectGolden("attention_plain", plain, NormKind::kPlain, tp);
    ExpectGolden("attention_gated", gated, NormKind::kZeroCentered, tp);
  }
}

LayerCase RandomAttention(bool gate) {
  const Dims dims = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kHidden, 6)};
  const SelfAttentionConfig config = {
      .hidden = 6, .num_query_groups = 4, .head_dim = 4, .output_gate = gate};
  LayerCase setup = WithConfig(config, Random("x", dims), Random("up", dims));
  setup.config.lora = {.enabled = true, .r = 2, .targets = {"linear_qkv", "linear_proj"}};
  setup.config.train_base = true;
  return setup;
}

// Heads are cut either way: the norms of q and k hold their own heads' terms. The finalizer takes
// them by name, so they carry no mark.
TEST(SelfAttention, ShardsReproduceTheUnsharded) {
  const std::string at = "self_attention.";
  for (const bool gate : {false, true}) {
    ExpectReproducesUnsharded(RandomAttention(gate), /*sequence_parallel=*/true,
                              {at + "?_layernorm.weight", at + "linear_qkv.layer_norm_weight",
                               at + "linear_qkv.lora_A", at + "linear_proj.lora_B"});
    ExpectReproducesUnsharded(RandomAttention(gate), /*sequence_parallel=*/false,
                              {at + "?_layernorm.weight"});
  }
  const Outcome two = RunLayer(RandomAttention(true), {.tp = 2}, true);
  EXPECT_EQ(two.StateText(at + "q_layernorm.weight"), "tp: P(g)");
  EXPECT_EQ(two.ranks[0].marks.at(at + "q_layernorm.weight"), Marks());
}

TEST(SelfAttention, RefusesAnotherWidth) {
  LayerCase setup = RandomAttention(false);
  const SelfAttentionConfig wider = {.hidden = 7, .layer_norm = false};
  setup.build = WithConfig(wider, setup.x, setup.up).build;
  EXPECT_THAT(std::string(RunLayer(setup).status.message()),
              HasSubstr("self_attention.linear_qkv/Linear#0"));
}

}  // namespace
}  // namespace sumonce::testing

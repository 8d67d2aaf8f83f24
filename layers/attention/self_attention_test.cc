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
  if (golden.Has("in.cu_seqlens")) setup.pass.sequence_starts = Starts(golden);
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
    ExpectGolden("attention_gated_packed",
                 {.head_dim = 8, .rope = {.rotary_dim = 4}, .output_gate = true},
                 NormKind::kZeroCentered, tp);
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

// Of a column target each sub-projection's lora_A is partial like the one of the whole would be.
TEST(SelfAttention, AdaptersOfSubProjectionsReproduceTheUnsharded) {
  LayerCase setup = RandomAttention(true);
  setup.config.lora.per_sub_projection = true;
  const std::string at = "self_attention.";
  ExpectReproducesUnsharded(setup, /*sequence_parallel=*/true,
                            {at + "?_layernorm.weight", at + "linear_qkv.layer_norm_weight",
                             at + "linear_qkv.?_proj.lora_A", at + "linear_proj.lora_B"});
  ExpectReproducesUnsharded(setup, /*sequence_parallel=*/false, {at + "?_layernorm.weight"});
  const Outcome two = RunLayer(setup, {.tp = 2}, true);
  for (const char* sub : {"q_proj", "k_proj", "v_proj"})
    EXPECT_EQ(two.StateText(at + "linear_qkv." + sub + ".lora_B"), "tp: S(g)");
}

// Two groups on four and eight ranks: tp is then an axis of groups and one of copies.
void ExpectRegime(KvRegime regime, bool gate, bool sequence_parallel,
                  const std::vector<std::string>& partial) {
  const Dims dims = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kHidden, 6)};
  const SelfAttentionConfig config = {.hidden = 6,
                                      .num_query_groups = 2,
                                      .heads_per_group = 4,
                                      .head_dim = 4,
                                      .output_gate = gate,
                                      .layer_norm = false,
                                      .regime = regime};
  LayerCase setup = WithConfig(config, Random("x", dims), Random("up", dims));
  setup.config.lora = {.enabled = true, .r = 2, .targets = {"linear_*"}};
  setup.config.train_base = true;
  Weights weights = {{"x", setup.x}};
  for (const int tp : {4, 8}) {
    ExpectReproducesUnsharded(LayerProgram(setup), weights, {.tp = tp, .kv = 2}, sequence_parallel,
                              partial);
  }
}

TEST(SelfAttention, FewerGroupsThanRanksReproduceTheUnsharded) {
  const std::string at = "self_attention.";
  const std::vector<std::string> norms = {at + "?_layernorm.weight"};
  const std::vector<std::string> own_tokens = {at + "?_layernorm.weight", at + "linear_qkv.lora_A",
                                               at + "linear_q.lora_A", at + "linear_kv.lora_A",
                                               at + "linear_proj.lora_B"};
  // A copy of keys and values has its own queries' terms.
  const std::vector<std::string> copies = {at + "linear_kv.weight", at + "linear_kv.lora_B"};
  for (const bool gate : {false, true}) {
    ExpectRegime(KvRegime::kSlices, gate, /*sequence_parallel=*/false, norms);
    ExpectRegime(KvRegime::kSlices, gate, /*sequence_parallel=*/true, own_tokens);
    std::vector<std::string> off = norms, on = own_tokens;
    off.insert(off.end(), copies.begin(), copies.end());
    on.insert(on.end(), copies.begin(), copies.end());
    ExpectRegime(KvRegime::kCopies, gate, /*sequence_parallel=*/false, off);
    ExpectRegime(KvRegime::kCopies, gate, /*sequence_parallel=*/true, on);
  }
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

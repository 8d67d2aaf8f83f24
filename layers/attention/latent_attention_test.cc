#include "layers/attention/latent_attention.h"

#include "gmock/gmock.h"
#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

using ::testing::HasSubstr;

const std::string kMixerAt = "self_attention.";
constexpr DownProjection kBothDowns[] = {DownProjection::kReplicated,
                                         DownProjection::kColumnParallel};

LayerCase WithConfig(const LatentAttentionConfig& config, const Tensor& x, const Tensor& up) {
  LayerCase setup = {.x = x, .up = up};
  setup.build = [config](const Builder& builder) {
    auto attention = std::make_shared<LatentAttention>(builder.Child("self_attention"), config);
    return [attention](Tape& tape, Value value) { return attention->Forward(tape, value); };
  };
  return setup;
}

// Ours, and the golden files': the packings are the same.
const std::vector<std::pair<std::string, std::string>> kLatentNames = {
    {"linear_q_down_proj.weight", "param.q_a_proj"},
    {"linear_q_up_proj.layer_norm_weight", "param.q_a_layernorm"},
    {"linear_q_up_proj.weight", "param.q_b_proj"},
    {"linear_kv_down_proj.weight", "param.kv_a_proj"},
    {"linear_kv_up_proj.layer_norm_weight", "param.kv_a_layernorm"},
    {"linear_kv_up_proj.weight", "param.kv_b_proj"},
    {"linear_proj.weight", "param.o_proj"}};

// `prefix`: of inputs, outputs and parameters, "" or "full.".
LayerCase GoldenCase(const Golden& golden, LatentAttentionConfig config,
                     const std::string& prefix = "") {
  for (const auto& [name, table] :
       {std::pair{"in.cos", &config.rope.cos}, {"in.sin", &config.rope.sin}}) {
    const Tensor stored = Matrix(golden, name);
    table->assign(stored.values().begin(), stored.values().end());
  }
  LayerCase setup = WithConfig(config, Activation(golden, prefix + "in.x", Dim::kHidden),
                               Activation(golden, "up." + prefix + "out.y", Dim::kHidden));
  for (const auto& [ours, theirs] : kLatentNames)
    setup.weights[kMixerAt + ours] = Matrix(golden, prefix + theirs);
  return setup;
}

void ExpectWholeMatches(const Golden& golden, const Outcome& outcome, const std::string& prefix) {
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_TRUE(golden.Matches(outcome.WholeY(), prefix + "out.y", kSequenceFirst));
  EXPECT_TRUE(golden.Matches(outcome.Whole("x"), "grad." + prefix + "in.x", kSequenceFirst));
  for (const auto& [ours, theirs] : kLatentNames)
    EXPECT_TRUE(golden.Matches(outcome.Whole(kMixerAt + ours), "grad." + prefix + theirs)) << ours;
}

TEST(LatentAttention, MatchesGoldenUnsharded) {
  const Golden golden("mla_attention");
  for (const DownProjection down : kBothDowns) {
    const LatentAttentionConfig config = {.down_projection = down, .rotary_key_sum = true};
    const LayerCase setup = GoldenCase(golden, config);
    ExpectWholeMatches(golden, RunLayer(setup), "");
    ExpectWholeMatches(golden, RunLayer(setup, {.tp = 2}), "");
  }
}

// What Megatron's own ranks hold before any reduction, the unsummed rotary key included.
void ExpectRanksMatch(const std::string& file, bool sequence_parallel) {
  SCOPED_TRACE(file);
  const Golden golden(file);
  const LayerCase setup = GoldenCase(golden, {}, "full.");
  ExpectWholeMatches(golden, RunLayer(setup), "full.");
  const Outcome two = RunLayer(setup, {.tp = 2}, sequence_parallel);
  ASSERT_EQ(two.status, absl::OkStatus());
  std::vector<std::pair<std::string, std::string>> held = {{"x", "in.x"}};
  for (const auto& [ours, theirs] : kLatentNames) {
    if (golden.Has("tp0." + theirs)) held.push_back({kMixerAt + ours, theirs});
  }
  ExpectRanksHold(golden, two, held, "out.y", kSequenceFirst);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string at = "tp" + std::to_string(rank) + ".";
    const RankTensors& own = two.ranks[rank];
    EXPECT_TRUE(golden.Matches(own.y, at + "out.y", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(own.param_grads.at("x"), "grad." + at + "in.x", kSequenceFirst));
    for (const auto& [ours, theirs] : kLatentNames) {
      EXPECT_TRUE(golden.Matches(own.param_grads.at(kMixerAt + ours), "grad." + at + theirs))
          << ours;
    }
  }
}

TEST(LatentAttention, MatchesGoldenOnRanks) {
  ExpectRanksMatch("mla_attention_tp2", /*sequence_parallel=*/false);
  ExpectRanksMatch("mla_attention_tp2_sp", /*sequence_parallel=*/true);
}

LayerCase RandomLatentCase(const LatentAttentionConfig& config) {
  const Dims dims = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kHidden, 16)};
  LayerCase setup = WithConfig(config, Random("x", dims), Random("up", dims));
  setup.config.lora = {.enabled = true,
                       .r = 2,
                       .targets = {"linear_*_down_proj", "linear_*_up_proj", "linear_proj"}};
  setup.config.train_base = true;
  return setup;
}

LatentAttentionConfig Mended(DownProjection down) {
  return {.q_lora_rank = 8,
          .kv_lora_rank = 8,
          .down_projection = down,
          .standalone_norms = true,
          .rotary_key_sum = true};
}

TEST(LatentAttention, ShardsReproduceTheUnsharded) {
  const LayerCase replicated = RandomLatentCase(Mended(DownProjection::kReplicated));
  const LayerCase column = RandomLatentCase(Mended(DownProjection::kColumnParallel));
  const std::vector<std::string> own_tokens = {
      kMixerAt + "*_layernorm.weight", kMixerAt + "linear_*_down_proj.lora_A",
      kMixerAt + "linear_*_up_proj.lora_A", kMixerAt + "linear_proj.lora_B"};
  std::vector<std::string> with_down = own_tokens;
  with_down.insert(with_down.end(), {kMixerAt + "linear_*_down_proj.weight",
                                     kMixerAt + "linear_*_down_proj.lora_B"});
  ExpectReproducesUnsharded(replicated, /*sequence_parallel=*/true, with_down);
  ExpectReproducesUnsharded(column, /*sequence_parallel=*/true, own_tokens);
  for (const LayerCase& setup : {replicated, column})
    ExpectReproducesUnsharded(setup, /*sequence_parallel=*/false, {});
}

// With sequence parallelism each rank's loss is that of its own tokens.
double MovedLoss(LayerCase setup, const std::string& param, int64_t at, double by) {
  Tensor moved = setup.weights.at(param).Clone();
  moved.data()[at] += by;
  setup.weights[param] = moved;
  double loss = 0;
  for (const RankTensors& rank : RunLayer(setup, {.tp = 2}, /*sequence_parallel=*/true).ranks)
    loss += rank.loss.data()[0];
  return loss;
}

// There is no golden file of the column-parallel form on ranks.
TEST(LatentAttention, ColumnParallelDownProjectionsMatchFiniteDifferences) {
  LayerCase setup = RandomLatentCase(Mended(DownProjection::kColumnParallel));
  setup.config.lora = {};
  const Outcome outcome = RunLayer(setup, {.tp = 2}, /*sequence_parallel=*/true);
  // Weights that a run fills in by name, to move an entry of.
  for (const auto& [name, state] : outcome.states) {
    if (name != "x") setup.weights[name] = Random(name, outcome.Whole(name).dims());
  }
  constexpr double kStep = 1e-4;
  for (const char* name : {"linear_q_down_proj.weight", "linear_kv_down_proj.weight",
                           "kv_layernorm.weight", "linear_kv_up_proj.weight"}) {
    const Tensor gradient = outcome.Whole(kMixerAt + name);
    for (int64_t at = 0; at < gradient.count(); at += gradient.count() / 6) {
      double difference = 0;
      for (const double sign : {1.0, -1.0})
        difference += sign * MovedLoss(setup, kMixerAt + name, at, sign * kStep);
      EXPECT_NEAR(gradient.data()[at], difference / (2 * kStep), 1e-6) << name << " " << at;
    }
  }
}

// As released: the rotary rows of the shared projection hold own heads' terms, the latent ones are
// complete; no state says that.
TEST(LatentAttention, WithoutTheSumTheSharedProjectionIsOfMixedUse) {
  LatentAttentionConfig config = Mended(DownProjection::kReplicated);
  config.rotary_key_sum = false;
  const Outcome two = RunLayer(RandomLatentCase(config), {.tp = 2}, /*sequence_parallel=*/false);
  EXPECT_THAT(two.StateText(kMixerAt + "linear_kv_down_proj.weight"), HasSubstr(kMixedUse));
  EXPECT_THAT(two.StateText("x"), HasSubstr(kMixedUse));
  EXPECT_EQ(two.StateText(kMixerAt + "linear_q_down_proj.weight"), "tp: E");
  config.down_projection = DownProjection::kColumnParallel;
  for (const bool sequence_parallel : {false, true}) {
    const Outcome column = RunLayer(RandomLatentCase(config), {.tp = 2}, sequence_parallel);
    EXPECT_THAT(column.StateText(kMixerAt + "linear_kv_down_proj.weight"), HasSubstr(kMixedUse));
  }
}

TEST(LatentAttention, RefusesAnotherWidth) {
  LayerCase setup = RandomLatentCase({});
  setup.build = WithConfig({.hidden = 7}, setup.x, setup.up).build;
  EXPECT_THAT(std::string(RunLayer(setup).status.message()),
              HasSubstr("self_attention.linear_q_down_proj/Linear#0"));
}

}  // namespace
}  // namespace sumonce::testing

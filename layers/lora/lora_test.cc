#include "layers/lora/lora.h"

#include "base/random.h"
#include "layers/linear/parallel_linear.h"
#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

LinearConfig Config(Dim cut) {
  return {.out = {Plain(Dim::kOut, 8)}, .in = {Plain(Dim::kIn, 12)}, .cut = cut};
}

LoraConfig Lora() { return {.enabled = true, .r = 3, .scaling = 2.0, .targets = {"linear"}}; }

template <typename LinearT>
LayerCase Adapted(const LinearConfig& config, const Tensor& x, const Tensor& up) {
  LayerCase setup = {.x = x, .up = up};
  setup.config.lora = Lora();
  setup.config.train_base = true;
  setup.build = [config](const Builder& builder) {
    auto linear = std::make_shared<LinearT>(builder.Child("linear"), config);
    return [linear](Tape& tape, Value value) { return linear->Forward(tape, value); };
  };
  return setup;
}

LayerCase LoraColumn(const Tensor& x, const Tensor& up, LinearConfig config = Config(Dim::kOut)) {
  LayerCase setup = Adapted<ColumnParallelLinear>(config, x, up);
  setup.y_cuts = {{Dim::kOut, Axis::kTp}};
  setup.y_over_sequence = false;
  return setup;
}

LayerCase LoraRow(const Tensor& x, const Tensor& up, LinearConfig config = Config(Dim::kIn)) {
  LayerCase setup = Adapted<RowParallelLinear>(config, x, up);
  setup.x_cuts = {{Dim::kIn, Axis::kTp}};
  setup.x_over_sequence = false;
  return setup;
}

Correspondence Names(const std::string& prefix) {
  return {{},
          {{"linear.weight", prefix + "weight"},
           {"linear.lora_A", prefix + "lora_A"},
           {"linear.lora_B", prefix + "lora_B"}}};
}

struct Full {
  explicit Full(const std::string& file) : golden(file) {}
  LayerCase As(LayerCase (*make)(const Tensor&, const Tensor&, LinearConfig), Dim cut) const {
    LayerCase setup = make(Activation(golden, "full.in.x", Dim::kIn),
                           Activation(golden, "up.full.out.y", Dim::kOut), Config(cut));
    setup.weights = LoadWeights(golden, Names("full.param."));
    return setup;
  }
  void ExpectWholeGradients(const Outcome& outcome) const {
    EXPECT_TRUE(golden.Matches(outcome.Whole("x"), "grad.full.in.x", kSequenceFirst));
    ExpectGradients(golden, Names("full.param."),
                    [&](const std::string& name) { return outcome.Whole(name); });
  }
  Golden golden;
};

const std::vector<std::pair<std::string, std::string>> kRankNames = {
    {"x", "in.x"},
    {"linear.weight", "param.weight"},
    {"linear.lora_A", "param.lora_A"},
    {"linear.lora_B", "param.lora_B"}};

TEST(Lora, MatchesGoldenOnEitherTarget) {
  const Golden golden("lora_linear");
  const Tensor x = Activation(golden, "in.x", Dim::kIn),
               up = Activation(golden, "up.out.y", Dim::kOut);
  for (LayerCase setup : {LoraColumn(x, up), LoraRow(x, up)}) {
    setup.weights = LoadWeights(golden, Names("param."));
    ExpectMatchesGolden(golden, Names("param."), RunLayer(setup));
  }
}

TEST(Lora, MatchesGoldenBesideABias) {
  const Golden golden("lora_linear_bias");
  Correspondence names = Names("param.");
  names.plain.push_back({"linear.bias", "param.bias"});
  for (const Dim cut : {Dim::kOut, Dim::kIn}) {
    LinearConfig config = Config(cut);
    config.bias = true;
    const auto make = cut == Dim::kOut ? LoraColumn : LoraRow;
    LayerCase setup = make(Activation(golden, "in.x", Dim::kIn),
                           Activation(golden, "up.out.y", Dim::kOut), config);
    setup.weights = LoadWeights(golden, names);
    ExpectMatchesGolden(golden, names, RunLayer(setup));
  }
}

// The adapter reads the normalised activation.
// The stored mask in place of a drawn one. A rank's mask is a slice of the whole's, whatever is
// cut.
TEST(Lora, MatchesGoldenWithDropout) {
  const Golden golden("lora_linear_dropout");
  const Tensor keep = Activation(golden, "in.keep", Dim::kIn);
  Correspondence names = Names("param.");
  names.plain.push_back({"linear.bias", "param.bias"});
  for (const Dim cut : {Dim::kOut, Dim::kIn}) {
    LinearConfig config = Config(cut);
    config.bias = true;
    const auto make = cut == Dim::kOut ? LoraColumn : LoraRow;
    LayerCase setup = make(Activation(golden, "in.x", Dim::kIn),
                           Activation(golden, "up.out.y", Dim::kOut), config);
    setup.config.lora.dropout = 0.25;
    setup.pass.tokens = {setup.x.dims()[0], setup.x.dims()[1]};
    setup.pass.keeps = [keep](const std::string&, int64_t index) {
      return keep.data()[index] == 1;
    };
    setup.weights = LoadWeights(golden, names);
    for (const int tp : {1, 2}) ExpectMatchesGolden(golden, names, RunLayer(setup, {.tp = tp}));
  }
}

// Dropout, a bias behind B, and sequence parallelism cutting both.
TEST(Lora, DropoutAndBiasReproduceTheUnsharded) {
  const Dims x = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kIn, 12)};
  const Dims y = {x[0], x[1], Plain(Dim::kOut, 8)};
  for (LayerCase setup :
       {LoraColumn(Random("x", x), Random("up", y)), LoraRow(Random("x", x), Random("up", y))}) {
    setup.config.lora.dropout = 0.5;
    setup.config.lora.bias = true;
    setup.pass.tokens = {x[0], x[1]};
    setup.pass.keeps = [](const std::string& module, int64_t index) {
      return RandomStream(1, module).Uniform(index) >= 0.5;
    };
    const bool row = !setup.x_over_sequence;
    ExpectReproducesUnsharded(setup, /*sequence_parallel=*/true,
                              row ? std::vector<std::string>{"linear.lora_B", "linear.lora_B_bias"}
                                  : std::vector<std::string>{"linear.lora_A"});
    ExpectReproducesUnsharded(setup, /*sequence_parallel=*/false, {});
  }
}

TEST(Lora, AFrozenFactorHasNoGradient) {
  const Dims x = {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(Dim::kIn, 12)};
  LayerCase setup = LoraColumn(Random("x", x), Random("up", {x[0], x[1], Plain(Dim::kOut, 8)}));
  setup.config.lora.freeze_A = true;
  const Outcome two = RunLayer(setup, {.tp = 2}, true);
  EXPECT_FALSE(two.states.contains("linear.lora_A"));
  EXPECT_EQ(two.StateText("linear.lora_B"), "tp: S(o)");
}

TEST(Lora, MatchesGoldenBehindAFusedNorm) {
  const Golden golden("norm_linear_lora");
  LinearConfig config = Config(Dim::kOut);
  config.layer_norm = true;
  LayerCase setup = LoraColumn(Activation(golden, "in.x", Dim::kIn),
                               Activation(golden, "up.out.y", Dim::kOut), config);
  setup.config.norm = NormKind::kZeroCentered;
  Correspondence names = Names("param.");
  names.plain.push_back({"linear.layer_norm_weight", "param.norm"});
  setup.weights = LoadWeights(golden, names);
  ExpectMatchesGolden(golden, names, RunLayer(setup));
}

// A rank's own contributions, before any communication.
TEST(Lora, ColumnMatchesGoldenRankPieces) {
  const Full full("lora_column_tp2");
  const Golden& golden = full.golden;
  const LayerCase setup = full.As(LoraColumn, Dim::kOut);
  const Outcome two = RunLayer(setup, {.tp = 2}, false, DropCommunication);
  ASSERT_TRUE(two.status.ok()) << two.status;
  ExpectRanksHold(golden, two, kRankNames, "out.y", kSequenceFirst);
  full.ExpectWholeGradients(RunLayer(setup));
  for (int rank = 0; rank < 2; ++rank) {
    const std::string tp = "tp" + std::to_string(rank) + ".";
    const RankTensors& own = two.ranks[rank];
    EXPECT_TRUE(golden.Matches(own.y, tp + "out.y", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(own.param_grads.at("x"), "grad." + tp + "in.x", kSequenceFirst));
    for (const std::string name : {"weight", "lora_A", "lora_B"}) {
      EXPECT_TRUE(
          golden.Matches(own.param_grads.at("linear." + name), "grad." + tp + "param." + name));
    }
  }
}

// With sequence parallelism: what nobody sums unless lora_A is marked.
TEST(Lora, ColumnContributionsUnderSequenceParallelismMatchGolden) {
  const Full full("lora_column_tp2");
  const Outcome two = RunLayer(full.As(LoraColumn, Dim::kOut), {.tp = 2}, true);
  ASSERT_TRUE(two.status.ok()) << two.status;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string sp = "grad.tp" + std::to_string(rank) + ".sp.";
    const auto& grads = two.ranks[rank].param_grads;
    EXPECT_TRUE(full.golden.Matches(grads.at("linear.lora_A"), sp + "param.lora_A"));
    EXPECT_TRUE(full.golden.Matches(grads.at("x"), sp + "in.x", kSequenceFirst));
  }
}

TEST(Lora, RowMatchesGoldenRankPieces) {
  const Full full("lora_row_tp2");
  const Golden& golden = full.golden;
  const Outcome two = RunLayer(full.As(LoraRow, Dim::kIn), {.tp = 2}, false);
  EXPECT_TRUE(golden.Matches(two.WholeY(), "full.out.y", kSequenceFirst));
  ExpectRanksHold(golden, two, kRankNames, "out.y", kSequenceFirst);
  full.ExpectWholeGradients(two);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string tp = "tp" + std::to_string(rank) + ".";
    const RankTensors& own = two.ranks[rank];
    EXPECT_TRUE(golden.Matches(own.values.at("linear.lora_A/Linear#0"), tp + "out.h_partial",
                               kSequenceFirst));
    EXPECT_TRUE(
        golden.Matches(own.values.at("linear/Linear#0"), tp + "out.base_partial", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(own.param_grads.at("x"), "grad." + tp + "in.x", kSequenceFirst));
    for (const std::string name : {"weight", "lora_A"}) {
      EXPECT_TRUE(
          golden.Matches(own.param_grads.at("linear." + name), "grad." + tp + "param." + name));
    }
  }
}

TEST(Lora, RowContributionsUnderSequenceParallelismMatchGolden) {
  const Full full("lora_row_tp2");
  const Outcome two = RunLayer(full.As(LoraRow, Dim::kIn), {.tp = 2}, true);
  ASSERT_TRUE(two.status.ok()) << two.status;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(full.golden.Matches(two.ranks[rank].param_grads.at("linear.lora_B"),
                                    "grad.tp" + std::to_string(rank) + ".sp.param.lora_B"));
  }
}

Dims Tokens(Dim last, int64_t extent) {
  return {Plain(Dim::kSequence, 8), Plain(Dim::kBatch, 2), Plain(last, extent)};
}

// The replicated factor's gradient: the first founding case's class.
TEST(Lora, ReplicatedFactorIsPartialUnderSequenceParallelismOnly) {
  const Tensor x = Random("x", Tokens(Dim::kIn, 12)), up = Random("up", Tokens(Dim::kOut, 8));
  ExpectReproducesUnsharded(LoraColumn(x, up), true, {"linear.lora_A"});
  ExpectReproducesUnsharded(LoraColumn(x, up), false, {});
  ExpectReproducesUnsharded(LoraRow(x, up), true, {"linear.lora_B"});
  ExpectReproducesUnsharded(LoraRow(x, up), false, {});
  EXPECT_EQ(RunLayer(LoraRow(x, up), {.tp = 2}, true).StateText("linear.lora_B"), "tp: P(s)");
}

TEST(Lora, ReplicatedFactorIsMarkedAndNamed) {
  LayerConfig config;
  config.lora = Lora();
  config.sequence_parallel = true;
  ParamStore params;
  const RowParallelLinear row(Builder(config, params).Child("linear"), Config(Dim::kIn));
  EXPECT_EQ(params.Find("linear.lora_A")->marks,
            (Marks{.tensor_model_parallel = true, .partition_dim = 1}));
  EXPECT_EQ(params.Find("linear.lora_B")->marks, (Marks{.sequence_parallel = true}));
  EXPECT_FALSE(params.Find("linear.lora_A")->replicated_lora);
  EXPECT_TRUE(params.Find("linear.lora_B")->replicated_lora);
  EXPECT_FALSE(params.Find("linear.weight")->requires_grad);
  EXPECT_TRUE(params.Find("linear.lora_A")->requires_grad);
}

// The bias behind lora_B is cut with a column target's output, and a copy of a row target's.
TEST(Lora, BiasIsMarkedAsItIsCut) {
  LayerConfig config;
  config.lora = Lora();
  config.lora.bias = true;
  config.sequence_parallel = true;
  ParamStore of_column, of_row;
  const ColumnParallelLinear column(Builder(config, of_column).Child("linear"), Config(Dim::kOut));
  const RowParallelLinear row(Builder(config, of_row).Child("linear"), Config(Dim::kIn));
  const Param& cut = *of_column.Find("linear.lora_B_bias");
  EXPECT_EQ(cut.marks, (Marks{.tensor_model_parallel = true, .partition_dim = 0}));
  EXPECT_FALSE(cut.replicated_lora);
  const Param& copy = *of_row.Find("linear.lora_B_bias");
  EXPECT_EQ(copy.marks, (Marks{.sequence_parallel = true}));
  EXPECT_TRUE(copy.replicated_lora);
}

TEST(LoraConfig, TargetsByLastComponentOrGlob) {
  LoraConfig lora = {.enabled = true, .targets = {"linear_proj", "*.layers.1.*fc?"}};
  EXPECT_TRUE(lora.Targets("decoder.layers.0.self_attention.linear_proj"));
  EXPECT_TRUE(lora.Targets("decoder.layers.1.mlp.linear_fc1"));
  EXPECT_FALSE(lora.Targets("decoder.layers.0.mlp.linear_fc1"));
  EXPECT_FALSE(lora.Targets("decoder.layers.0.self_attention.linear_projection"));
  lora.enabled = false;
  EXPECT_FALSE(lora.Targets("decoder.layers.0.self_attention.linear_proj"));
}

}  // namespace
}  // namespace sumonce::testing

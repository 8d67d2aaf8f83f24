#include "layers/decoder/decoder.h"

#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

// Whole inputs of one microbatch.
struct Batch {
  Tensor tokens, targets, weights, probe;
  BatchInputs Inputs() const {
    const Dims& dims = weights.dims();
    return {.tokens_one_hot = &tokens,
            .targets_one_hot = &targets,
            .loss_weights = &weights,
            .probe = &probe,
            .sequence = dims[0].units,
            .batch = dims[1].units};
  }
};

ProgramFn Training(const ModelConfig& config, const std::shared_ptr<Batch>& batch) {
  return [config, batch](bool sequence_parallel) {
    ModelConfig own = config;
    own.common.sequence_parallel = sequence_parallel;
    auto model = std::make_shared<Model>(own);
    return Program{.owner = model, .params = &model->params(), .step = [model, batch](Tape& tape) {
                     return model->Forward(tape, batch->Inputs(), Scale());
                   }};
  };
}

ModelConfig Hybrid(const SelfAttentionConfig& attention, const GatedDeltaNetConfig& gdn = {}) {
  ModelConfig config;
  config.layers = {{.mixer = gdn, .mlp = MlpConfig()}, {.mixer = attention, .mlp = MlpConfig()}};
  config.common.norm = NormKind::kZeroCentered;
  config.common.lora = LoraOnAllTargets(4);
  config.common.train_base = true;
  return config;
}

std::shared_ptr<Batch> GoldenBatch(const Golden& golden) {
  const Dims tokens = {Plain(Dim::kSequence, 13), Plain(Dim::kBatch, 2)};
  auto batch = std::make_shared<Batch>();
  batch->tokens = OneHot(golden.Get("in.tokens", tokens, kSequenceFirst), 24);
  batch->targets = OneHot(golden.Get("in.targets", tokens, kSequenceFirst), 24);
  batch->weights = golden.Get("in.loss_mask", tokens, kSequenceFirst).Clone();
  double counted = 0.0;
  for (const double mask : batch->weights.values()) counted += mask;
  ScaleInto(batch->weights, Matrix(golden, "up.out.loss").data()[0] / counted);
  return batch;
}

Correspondence TinyLmNames(const ModelConfig& config) {
  const std::string zero = "decoder.layers.0.", one = "decoder.layers.1.";
  const std::string at = "param.layers.0.", from = "param.layers.1.";
  const std::string mixer = "self_attention.";
  Correspondence names = {
      {},
      {{"embedding.word_embeddings.weight", "param.embed"},
       {"decoder.final_layernorm.weight", "param.final_norm"},
       {"output_layer.weight", "param.lm_head"},
       {zero + mixer + "in_proj.layer_norm_weight", at + "input_layernorm"},
       {zero + "mlp.linear_fc1.layer_norm_weight", at + "post_attention_layernorm"},
       {one + mixer + "linear_qkv.layer_norm_weight", from + "input_layernorm"},
       {one + "mlp.linear_fc1.layer_norm_weight", from + "post_attention_layernorm"}}};
  names.Append(FlatGdnNames(std::get<GatedDeltaNetConfig>(config.layers[0].mixer), zero + mixer,
                            at + "linear_attn."));
  names.Append(AttentionNames(std::get<SelfAttentionConfig>(config.layers[1].mixer), one + mixer,
                              from + "self_attn."));
  names.Append(MlpNames(*config.layers[0].mlp, zero + "mlp.", at + "mlp."));
  names.Append(MlpNames(*config.layers[1].mlp, one + "mlp.", from + "mlp."));
  return names;
}

// 13 tokens do not divide by 2, so tp 2 runs without sequence parallelism; dp 2 takes one sequence
// each.
TEST(Model, TinyLanguageModelMatchesGolden) {
  const Golden golden("tiny_lm_lora");
  SelfAttentionConfig attention = {.output_gate = true};
  const Tensor cos = Matrix(golden, "in.cos"), sin = Matrix(golden, "in.sin");
  attention.rope.cos.assign(cos.values().begin(), cos.values().end());
  attention.rope.sin.assign(sin.values().begin(), sin.values().end());
  ModelConfig config = Hybrid(attention);
  const Correspondence names = TinyLmNames(config);
  config.common.lora = LoraOnAllTargets(FusedRank(golden, names));
  const ProgramFn program = Training(config, GoldenBatch(golden));
  const Weights weights = LoadWeights(golden, names);
  for (const MeshSizes& sizes : {MeshSizes{}, MeshSizes{.tp = 2}, MeshSizes{.tp = 2, .dp = 2}}) {
    SCOPED_TRACE("tp " + std::to_string(sizes.tp) + " dp " + std::to_string(sizes.dp));
    const Outcome outcome = RunProgram(program, weights, sizes);
    EXPECT_TRUE(golden.Matches(outcome.WholeY(), "out.token_loss", kSequenceFirst));
    ExpectGradients(golden, names, [&](const std::string& name) { return outcome.Whole(name); });
    if (sizes.dp > 1) continue;
    EXPECT_TRUE(golden.Matches(outcome.ranks[0].loss, "out.loss"));
    std::vector<Tensor> logits;
    for (const RankTensors& rank : outcome.ranks)
      logits.push_back(rank.values.at("output_layer/Linear#0"));
    EXPECT_TRUE(golden.Matches(JoinUnits(logits, Dim::kVocab), "out.logits", kSequenceFirst));
  }
}

std::shared_ptr<Batch> RandomBatch() {
  const DimExtent s = Plain(Dim::kSequence, 8), b = Plain(Dim::kBatch, 2);
  Tensor ids({s, b});
  for (int64_t i = 0; i < ids.count(); ++i) ids.data()[i] = static_cast<double>((i * 7 + 3) % 24);
  auto batch = std::make_shared<Batch>();
  batch->tokens = OneHot(ids, 24);
  for (double& id : std::span(ids.data(), ids.count())) id = 23 - id;
  batch->targets = OneHot(ids, 24);
  batch->weights = Random("weights", {s, b});
  batch->probe = Random("probe", {s, b, Plain(Dim::kHidden, 16)});
  return batch;
}

const SelfAttentionConfig kAttention = {.num_query_groups = 4, .head_dim = 4, .output_gate = true};
const GatedDeltaNetConfig kGdn = {.num_key_heads = 4, .num_value_heads = 8};

// What theory says of every parameter: heads' terms either way, own tokens' with sequence
// parallelism, all else complete or shards.
const std::vector<std::string> kOwnHeads = {"*.{q,k}_layernorm.weight", "*.out_norm.weight"};
std::vector<std::string> OwnTokens() {
  std::vector<std::string> partial = kOwnHeads;
  partial.insert(partial.end(), {"*.layer_norm_weight", "*.final_layernorm.weight",
                                 "*{linear_qkv,linear_fc1,in_proj}.lora_A",
                                 "*{linear_proj,linear_fc2,out_proj}.lora_B"});
  return partial;
}

TEST(Model, ShardsReproduceTheUnsharded) {
  const ProgramFn program = Training(Hybrid(kAttention, kGdn), RandomBatch());
  ExpectReproducesUnsharded(program, {}, {.tp = 2}, true, OwnTokens());
  ExpectReproducesUnsharded(program, {}, {.tp = 4, .dp = 2}, true, OwnTokens());
  ExpectReproducesUnsharded(program, {}, {.tp = 4}, false, kOwnHeads);
}

TEST(Model, GradientsArePartialOverDp) {
  const ProgramFn program = Training(Hybrid(kAttention, kGdn), RandomBatch());
  const Outcome outcome = RunProgram(program, {}, {.dp = 2});
  for (const auto& [name, state] : outcome.states) {
    EXPECT_EQ(outcome.StateText(name), "dp: P(b)") << name;
  }
}

// The linear form for the exact mode: no norm, no mixer, no softmax.
TEST(Model, ProbeHeadIsLinearAndReproduces) {
  ModelConfig config;
  const MlpConfig mlp = {.activation = MlpActivation::kLinear, .layer_norm = false};
  config.layers = {{.mixer = std::monostate(), .mlp = mlp},
                   {.mixer = std::monostate(), .mlp = mlp}};
  config.head = Head::kProbe;
  config.common.lora = LoraOnAllTargets(2);
  config.common.train_base = true;
  const ProgramFn program = Training(config, RandomBatch());
  const std::vector<std::string> own_tokens = {"*.linear_fc1.lora_A", "*.linear_fc2.lora_B"};
  ExpectReproducesUnsharded(program, {}, {.tp = 4}, false, {});
  const Outcome one = RunProgram(program, {}), two = RunProgram(program, {}, {.tp = 2}, true);
  for (const auto& [name, state] : one.states) {
    EXPECT_TRUE(AllClose(two.Whole(name), one.Whole(name))) << name;
  }
  EXPECT_TRUE(AllClose(two.ranks[1].loss, one.ranks[0].loss));
  EXPECT_EQ(two.StateText("decoder.layers.1.mlp.linear_fc2.lora_B"), "tp: P(s)");
}

TEST(Model, OperationsAndParametersHaveMegatronsNames) {
  const Outcome two =
      RunProgram(Training(Hybrid(kAttention, kGdn), RandomBatch()), {}, {.tp = 2}, true);
  ASSERT_TRUE(two.status.ok()) << two.status;
  const std::string proj = "decoder.layers.1.self_attention.linear_proj";
  for (const std::string& name :
       {std::string("embedding.word_embeddings/ReduceScatter#0"), proj + "/ReduceScatter#0",
        proj + ".lora_A/ReduceScatter#0",
        std::string("decoder.layers.0.self_attention.in_proj/AllGather#0"),
        std::string("decoder.layers.0.mlp.linear_fc1.lora_B/AllGather#0"),
        std::string("decoder.final_layernorm/RmsNorm#0"), std::string("output_layer/AllGather#0"),
        std::string("loss/StopMax#0")}) {
    EXPECT_TRUE(two.ranks[0].values.contains(name)) << name;
  }
  EXPECT_TRUE(two.states.contains(proj + ".lora_B"));
}

}  // namespace
}  // namespace sumonce::testing

// The model: its layers, with the sizes that have to fit each other. proto/model.proto says what
// the fields mean.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sim/reader/reading.h"

namespace sumonce {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 24;
constexpr int kMaxLayers = 1000;

// `whole` has to be a multiple of `part`. Returns one that is, to go on with.
int64_t Multiple(const Block& block, const char* whole_name, int64_t whole, const char* part_name,
                 int64_t part) {
  if (whole % part == 0) return whole;
  const int64_t below = whole / part * part;
  block.Add(whole_name,
            absl::StrCat(whole_name, ": ", whole, ", expected a multiple of ", part_name, "=", part,
                         "; take ", below > 0 ? absl::StrCat(below, " or ") : "", below + part));
  return below + part;
}

SelfAttentionConfig ReadAttention(const Block& block, int64_t hidden) {
  SelfAttentionConfig config = {.hidden = hidden, .num_query_groups = 4, .qk_layernorm = false};
  const auto extent = [&](const char* field, int64_t fallback) {
    return block.Int(field, fallback, 1, kMaxExtent);
  };
  config.num_query_groups = extent("num_query_groups", config.num_query_groups);
  const int64_t heads = extent("num_heads", config.num_query_groups * config.heads_per_group);
  config.heads_per_group =
      Multiple(block, "num_heads", heads, "num_query_groups", config.num_query_groups) /
      config.num_query_groups;
  config.head_dim = extent("head_dim", config.head_dim);
  const int64_t even = config.head_dim / 2 * 2;
  config.rope.rotary_dim = block.Int("rotary_dim", even, 0, config.head_dim);
  if (config.rope.rotary_dim % 2 != 0) {
    block.Add("rotary_dim", absl::StrCat("rotary_dim: ", config.rope.rotary_dim,
                                         ", expected an even number: entries are rotated in pairs; "
                                         "take ",
                                         config.rope.rotary_dim - 1));
    config.rope.rotary_dim = even;
  }
  config.rope.base = block.Number("rope_theta", config.rope.base, 1);
  config.qk_layernorm = block.Flag("qk_layernorm");
  config.output_gate = block.Flag("output_gate");
  config.kv_copies = block.Flag("kv_copies");
  return config;
}

GatedDeltaNetConfig ReadGatedDeltaNet(const Block& block, int64_t hidden) {
  GatedDeltaNetConfig config = {.hidden = hidden, .num_key_heads = 4};
  const auto extent = [&](const char* field, int64_t& value) {
    value = block.Int(field, value, 1, kMaxExtent);
  };
  extent("num_key_heads", config.num_key_heads);
  config.num_value_heads = 2 * config.num_key_heads;
  extent("num_value_heads", config.num_value_heads);
  extent("key_head_dim", config.key_head_dim);
  extent("value_head_dim", config.value_head_dim);
  extent("conv_kernel_dim", config.conv_kernel_dim);
  config.num_value_heads = Multiple(block, "num_value_heads", config.num_value_heads,
                                    "num_key_heads", config.num_key_heads);
  config.mode = block.Choice("mode", config.mode,
                             {{"UPSTREAM", GdnMode::kUpstream},
                              {"GATHER_REGION", GdnMode::kGatherRegion},
                              {"REPLICA_SCATTERED", GdnMode::kReplicaScattered},
                              {"REPLICA_DIVIDED", GdnMode::kReplicaDivided}});

  config.packing = block.Choice(
      "packing", config.packing,
      {{"MEGATRON", GdnPacking::kMegatron}, {"PER_KEY_HEAD", GdnPacking::kPerKeyHead}});
  config.decoupled_projections = block.Flag("decoupled_projections");
  config.conv_bias = block.Flag("conv_bias");
  config.chunk_size = block.Int("chunk_size", 0, 1, kMaxExtent);
  config.decoupled_norm =
      block.Flag("decoupled_norm") || config.decoupled_projections || IsReplica(config.mode);
  config.shared_norm = block.Flag("shared_norm");
  if (config.shared_norm && !config.decoupled_norm) {
    block.Add("shared_norm",
              "shared_norm without decoupled_norm, expected an input norm to share; add "
              "decoupled_norm: true");
  }
  return config;
}

LatentAttentionConfig ReadLatentAttention(const Block& block, int64_t hidden) {
  LatentAttentionConfig config = {.hidden = hidden, .kv_lora_rank = 8};
  const auto extent = [&](const char* field, int64_t& value) {
    value = block.Int(field, value, 1, kMaxExtent);
  };
  extent("num_heads", config.num_heads);
  extent("q_lora_rank", config.q_lora_rank);
  extent("kv_lora_rank", config.kv_lora_rank);
  extent("qk_head_dim", config.qk_head_dim);
  extent("qk_pos_emb_head_dim", config.qk_pos_emb_head_dim);
  extent("v_head_dim", config.v_head_dim);
  config.qk_pos_emb_head_dim =
      Multiple(block, "qk_pos_emb_head_dim", config.qk_pos_emb_head_dim, "a pair", 2);
  config.rope.rotary_dim = config.qk_pos_emb_head_dim;
  config.rope.base = block.Number("rope_theta", config.rope.base, 1);
  config.down_projection = block.Choice("down_projection", config.down_projection,
                                        {{"REPLICATED", DownProjection::kReplicated},
                                         {"COLUMN_PARALLEL", DownProjection::kColumnParallel}});
  config.standalone_norms = block.Flag("standalone_norms");
  config.rotary_key_sum = block.Flag("rotary_key_sum");
  return config;
}

MlpActivation ReadActivation(const Block& block) {
  return block.Choice("activation", MlpActivation::kSwiglu,
                      {{"SWIGLU", MlpActivation::kSwiglu},
                       {"LINEAR", MlpActivation::kLinear},
                       {"GELU", MlpActivation::kGelu},
                       {"GELU_TANH", MlpActivation::kGeluTanh},
                       {"SQUARED_RELU", MlpActivation::kSquaredRelu}});
}

MlpConfig ReadMlp(const Block& block, int64_t hidden) {
  MlpConfig config = {.hidden = hidden};
  config.ffn = block.Int("ffn", config.ffn, 1, kMaxExtent);
  config.activation = ReadActivation(block);
  config.layer_norm = !block.Flag("no_norm");
  return config;
}

// A norm that stands in front is not fused as well.
void ReadNorms(const Block& block, DecoderLayerConfig& layer) {
  layer.input_layernorm = block.Flag("input_layernorm");
  layer.pre_mlp_layernorm = block.Flag("pre_mlp_layernorm");
  if (layer.input_layernorm) {
    if (auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer))
      attention->layer_norm = false;
    if (auto* gdn = std::get_if<GatedDeltaNetConfig>(&layer.mixer)) gdn->decoupled_norm = true;
    if (std::holds_alternative<std::monostate>(layer.mixer)) {
      block.Add("input_layernorm",
                "input_layernorm without a mixer, expected self_attention or "
                "linear_attention behind it; take it out");
    }
  }
  if (!layer.pre_mlp_layernorm) return;
  if (layer.mlp) {
    layer.mlp->layer_norm = false;
  } else if (!block.Given("shared_expert")) {  // which has it always
    block.Add("pre_mlp_layernorm",
              "pre_mlp_layernorm without mlp, expected an MLP behind it; take it out");
  }
}

SharedExpertConfig ReadSharedExpert(const Block& block, int64_t hidden) {
  SharedExpertConfig config = {.mlp = {.hidden = hidden}};
  config.mlp.ffn = block.Int("ffn", config.mlp.ffn, 1, kMaxExtent);
  config.mlp.activation = ReadActivation(block);
  config.overlap = block.Flag("overlap");
  config.gate = block.Flag("gate");
  return config;
}

DecoderLayerConfig ReadLayer(const Block& block, Reading& reading) {
  const int64_t hidden = reading.scenario.model.hidden;
  DecoderLayerConfig layer;
  const std::string mixer = block.Which("mixer");
  layer.mixer = std::monostate();
  if (mixer == "self_attention") layer.mixer = ReadAttention(block.Child(mixer), hidden);
  if (mixer == "multi_latent_attention")
    layer.mixer = ReadLatentAttention(block.Child(mixer), hidden);
  if (mixer == "linear_attention") layer.mixer = ReadGatedDeltaNet(block.Child(mixer), hidden);
  if (block.Given("mlp")) layer.mlp = ReadMlp(block.Child("mlp"), hidden);
  ReadNorms(block, layer);
  if (block.Given("shared_expert")) {
    layer.shared_expert = ReadSharedExpert(block.Child("shared_expert"), hidden);
    if (layer.mlp) {
      block.Add("shared_expert", "shared_expert beside mlp, expected one of them; take one away");
    }
  }
  if (block.HasMistake() && (mixer.empty() || !(layer.mlp || layer.shared_expert)))
    reading.model_known = false;
  if (mixer.empty() && !layer.mlp && !layer.shared_expert) {
    block.Missing(
        "this layer is empty, expected self_attention, linear_attention, multi_latent_attention or "
        "mlp");
  }
  return layer;
}

void AddBiases(ModelConfig& model) {
  for (DecoderLayerConfig& layer : model.layers) {
    if (auto* attention = std::get_if<SelfAttentionConfig>(&layer.mixer)) attention->bias = true;
    if (layer.mlp) layer.mlp->bias = true;
  }
}

}  // namespace

void ReadModel(const Block& root, Reading& reading) {
  const Block block = root.Child("model");
  ModelConfig& model = reading.scenario.model;
  model.vocab = block.Int("vocab", model.vocab, 2, kMaxExtent);
  model.hidden = block.Int("hidden", model.hidden, 1, kMaxExtent);
  model.head = block.Choice("head", model.head,
                            {{"CROSS_ENTROPY", Head::kCrossEntropy}, {"PROBE", Head::kProbe}});
  model.common.norm =
      block.Choice("norm", model.common.norm,
                   {{"PLAIN", NormKind::kPlain}, {"ZERO_CENTERED", NormKind::kZeroCentered}});
  model.common.norm_eps = block.Number("norm_eps", model.common.norm_eps, 0);
  model.common.init_std = block.Number("init_std", model.common.init_std, 0);
  const std::vector<Block> layers = block.Children("layer");
  if (layers.empty()) {
    block.Missing("the model has no layer, expected at least one: model { layer { ... } }");
  }
  if (layers.size() > kMaxLayers) {
    block.Add("layer", absl::StrCat(layers.size(), " layers, expected at most ", kMaxLayers));
    return;
  }
  for (const Block& layer : layers) model.layers.push_back(ReadLayer(layer, reading));
  if (block.Flag("add_bias_linear")) AddBiases(model);
  model.embedding_output = block.Choice("embedding_output", model.embedding_output,
                                        {{"REDUCE_SCATTERED", EmbeddingOutput::kReduceScattered},
                                         {"SCATTERED", EmbeddingOutput::kScattered},
                                         {"DIVIDED", EmbeddingOutput::kDivided}});
  model.max_positions = block.Int("max_position_embeddings", 0, 1, kMaxExtent);
}

}  // namespace sumonce

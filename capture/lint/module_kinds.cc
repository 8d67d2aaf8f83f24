#include "capture/lint/module_kinds.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace sumonce::lint {
namespace {

struct KnownClass {
  std::string_view package;  // what the qualified name begins with
  std::string_view name;     // and ends with
  ModuleKind kind;
};

constexpr std::string_view kMegatron = "megatron.core.", kTe = "transformer_engine.",
                           kBridge = "mcore_bridge.", kTorch = "torch.nn.modules.", kPeft = "peft.";

// megatron/core/{models,transformer,tensor_parallel,extensions,ssm,fusions}, transformer_engine/
// pytorch/module, mcore_bridge/{model,tuners}, torch/nn/modules, peft.
constexpr KnownClass kClasses[] = {
    {kMegatron, "GPTModel", ModuleKind::kModel},
    {kBridge, "gpt_model.GPTModel", ModuleKind::kModel},
    {kMegatron, "TransformerBlock", ModuleKind::kBlock},
    {kBridge, "modules.transformer_block.TransformerBlock", ModuleKind::kBlock},
    {kMegatron, "TransformerLayer", ModuleKind::kLayer},
    {kBridge, "modules.transformer_layer.TransformerLayer", ModuleKind::kLayer},
    {kMegatron, "LanguageModelEmbedding", ModuleKind::kEmbedding},
    {kMegatron, "VocabParallelEmbedding", ModuleKind::kVocabEmbedding},
    {kMegatron, "attention.SelfAttention", ModuleKind::kSelfAttention},
    {kBridge, "modules.gated_self_attention.GatedSelfAttention", ModuleKind::kSelfAttention},
    {kMegatron, "MLASelfAttention", ModuleKind::kMla},
    {kMegatron, "GatedDeltaNet", ModuleKind::kGatedDeltaNet},
    {kBridge, "modules.gated_delta_net.GatedDeltaNet", ModuleKind::kGatherGatedDeltaNet},
    {kMegatron, "transformer.mlp.MLP", ModuleKind::kMlp},
    {kMegatron, "MoELayer", ModuleKind::kMoe},
    {kMegatron, "TopKRouter", ModuleKind::kRouter},
    {kBridge, "modules.topk_router.TopKRouter", ModuleKind::kRouter},
    {kMegatron, "tensor_parallel.layers.ColumnParallelLinear", ModuleKind::kColumnLinear},
    {kMegatron, "tensor_parallel.layers.RowParallelLinear", ModuleKind::kRowLinear},
    {kMegatron, "TEColumnParallelLinear", ModuleKind::kColumnLinear},
    {kMegatron, "TERowParallelLinear", ModuleKind::kRowLinear},
    {kMegatron, "TELayerNormColumnParallelLinear", ModuleKind::kNormColumnLinear},
    {kMegatron, "transformer_engine.TELinear", ModuleKind::kReplicatedLinear},
    {kTorch, "linear.Linear", ModuleKind::kReplicatedLinear},
    {kMegatron, "FusedLayerNorm", ModuleKind::kNorm},
    {kTe, "RMSNorm", ModuleKind::kNorm},
    {kTe, "LayerNorm", ModuleKind::kNorm},
    {kTorch, "normalization.RMSNorm", ModuleKind::kNorm},
    {kTorch, "normalization.LayerNorm", ModuleKind::kNorm},
    {kTorch, "sparse.Embedding", ModuleKind::kPositionEmbedding},
    {kTorch, "conv.Conv1d", ModuleKind::kConv},
    {kBridge, "tuners.lora.LoraParallelLinear", ModuleKind::kLora},
    {kMegatron, "DotProductAttention", ModuleKind::kNeutral},
    {kMegatron, "FusedScaleMaskSoftmax", ModuleKind::kNeutral},
    {kMegatron, "RotaryEmbedding", ModuleKind::kNeutral},
    {kMegatron, "IdentityOp", ModuleKind::kNeutral},
    {kMegatron, "IdentityFuncOp", ModuleKind::kNeutral},
    {kTe, "DotProductAttention", ModuleKind::kNeutral},
    {kTorch, "dropout.Dropout", ModuleKind::kNeutral},
    {kTorch, "linear.Identity", ModuleKind::kNeutral},
    {kTorch, "container.ModuleDict", ModuleKind::kNeutral},
    {kTorch, "container.ModuleList", ModuleKind::kNeutral},
    {kTorch, "container.ParameterDict", ModuleKind::kNeutral},
    {kTorch, "activation.SiLU", ModuleKind::kNeutral},
    {kTorch, "activation.GELU", ModuleKind::kNeutral},
    {kPeft, "PeftModel", ModuleKind::kNeutral},
    {kPeft, "PeftModelForCausalLM", ModuleKind::kNeutral},
    {kPeft, "LoraModel", ModuleKind::kNeutral},
};

constexpr std::pair<ModuleKind, std::string_view> kNames[] = {
    {ModuleKind::kUnknown, "unknown"},
    {ModuleKind::kNeutral, "without parameters"},
    {ModuleKind::kModel, "model"},
    {ModuleKind::kBlock, "transformer block"},
    {ModuleKind::kLayer, "transformer layer"},
    {ModuleKind::kEmbedding, "embedding"},
    {ModuleKind::kVocabEmbedding, "vocab-parallel embedding"},
    {ModuleKind::kPositionEmbedding, "position embedding"},
    {ModuleKind::kSelfAttention, "self-attention"},
    {ModuleKind::kMla, "multi-latent attention"},
    {ModuleKind::kGatedDeltaNet, "GatedDeltaNet"},
    {ModuleKind::kGatherGatedDeltaNet, "GatedDeltaNet with its gather region"},
    {ModuleKind::kMlp, "MLP"},
    {ModuleKind::kMoe, "mixture of experts"},
    {ModuleKind::kRouter, "router"},
    {ModuleKind::kColumnLinear, "column-parallel linear"},
    {ModuleKind::kNormColumnLinear, "norm and column-parallel linear"},
    {ModuleKind::kRowLinear, "row-parallel linear"},
    {ModuleKind::kReplicatedLinear, "replicated linear"},
    {ModuleKind::kNorm, "norm"},
    {ModuleKind::kConv, "convolution"},
    {ModuleKind::kLora, "LoRA on a parallel linear"},
};

// The name is whole components: "...gpt_model.GPTModel" is no "PTModel".
bool EndsWithName(std::string_view class_name, std::string_view name) {
  if (!class_name.ends_with(name)) return false;
  return class_name.size() > name.size() && class_name[class_name.size() - name.size() - 1] == '.';
}

}  // namespace

ModuleKind KindOfClass(std::string_view class_name) {
  for (const KnownClass& known : kClasses) {
    if (class_name.starts_with(known.package) && EndsWithName(class_name, known.name))
      return known.kind;
  }
  return ModuleKind::kUnknown;
}

std::string_view Name(ModuleKind kind) {
  for (const auto& [value, name] : kNames) {
    if (value == kind) return name;
  }
  return {};
}

const std::vector<std::pair<std::string_view, ModuleKind>>& KindsOfModuleMap() {
  static const auto& kinds = *new std::vector<std::pair<std::string_view, ModuleKind>>{
      {"NEUTRAL", ModuleKind::kNeutral},
      {"SELF_ATTENTION", ModuleKind::kSelfAttention},
      {"MULTI_LATENT_ATTENTION", ModuleKind::kMla},
      {"GATED_DELTA_NET", ModuleKind::kGatedDeltaNet},
      {"GATHER_GATED_DELTA_NET", ModuleKind::kGatherGatedDeltaNet},
      {"MLP", ModuleKind::kMlp},
      {"ROUTER", ModuleKind::kRouter},
      {"COLUMN_PARALLEL_LINEAR", ModuleKind::kColumnLinear},
      {"NORM_COLUMN_PARALLEL_LINEAR", ModuleKind::kNormColumnLinear},
      {"ROW_PARALLEL_LINEAR", ModuleKind::kRowLinear},
      {"REPLICATED_LINEAR", ModuleKind::kReplicatedLinear},
      {"NORM", ModuleKind::kNorm},
      {"TRANSFORMER_LAYER", ModuleKind::kLayer},
      {"TRANSFORMER_BLOCK", ModuleKind::kBlock},
  };
  return kinds;
}

std::vector<int> VersionNumbers(std::string_view version) {
  std::vector<int> numbers;
  for (const absl::string_view part : absl::StrSplit(ToAbsl(version), '.')) {
    const size_t digits = std::min(part.find_first_not_of("0123456789"), part.size());
    int number = 0;
    if (digits == 0 || !absl::SimpleAtoi(part.substr(0, digits), &number)) break;
    numbers.push_back(number);
    if (digits < part.size()) break;
  }
  if (!numbers.empty()) numbers.resize(3);
  return numbers;
}

bool GathersSequence(std::string_view version) {
  return VersionNumbers(version) >= std::vector<int>{1, 6, 2};
}

}  // namespace sumonce::lint

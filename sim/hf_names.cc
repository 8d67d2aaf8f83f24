#include "sim/hf_names.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace sumonce {
namespace {

std::vector<int64_t> Range(int64_t count) {
  std::vector<int64_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// All rows of one part, unit after unit.
void AppendPart(const DimExtent& fused, size_t part, std::vector<int64_t>& rows) {
  for (int64_t unit = 0; unit < fused.units; ++unit) {
    for (int64_t i = 0; i < fused.parts[part]; ++i) rows.push_back(fused.Index(unit, part, i));
  }
}

SubProjection Part(const std::string& name, const DimExtent& fused,
                   std::initializer_list<size_t> parts) {
  SubProjection sub{.name = name, .rows = {}};
  for (size_t part : parts) AppendPart(fused, part, sub.rows);
  return sub;
}

// q_proj rows head by head; with an output gate each head's gate follows its query.
SubProjection Queries(const SelfAttentionConfig& config, const DimExtent& fused) {
  if (!config.output_gate) return Part("q_proj", fused, {0});
  SubProjection sub{.name = "q_proj", .rows = {}};
  const int64_t heads = config.heads_per_group;
  for (int64_t group = 0; group < fused.units; ++group) {
    for (int64_t head = 0; head < heads; ++head) {
      for (size_t part : {0, 1}) {
        for (int64_t i = 0; i < config.head_dim; ++i) {
          sub.rows.push_back(fused.Index(group, part, head * config.head_dim + i));
        }
      }
    }
  }
  return sub;
}

std::vector<SubProjection> Attention(const SelfAttentionConfig& config, const std::string& module) {
  if (module == "linear_proj") return {{"o_proj", Range(config.hidden)}};
  if (module == "linear_q") {
    const int64_t heads = config.num_query_groups * config.heads_per_group;
    return {{"q_proj", Range(heads * config.head_dim * (config.output_gate ? 2 : 1))}};
  }
  if (module == "linear_kv") {
    const DimExtent kv{.dim = Dim::kGroup,
                       .units = config.num_query_groups,
                       .parts = {config.head_dim, config.head_dim}};
    return {Part("k_proj", kv, {0}), Part("v_proj", kv, {1})};
  }
  if (module != "linear_qkv") return {};
  const int64_t queries = config.heads_per_group * config.head_dim;
  DimExtent fused{.dim = Dim::kGroup, .units = config.num_query_groups};
  fused.parts = {queries, config.head_dim, config.head_dim};
  if (config.output_gate) fused.parts.insert(fused.parts.begin(), queries);
  const size_t k = config.output_gate ? 2 : 1;
  return {Queries(config, fused), Part("k_proj", fused, {k}), Part("v_proj", fused, {k + 1})};
}

std::vector<SubProjection> Gdn(const GatedDeltaNetConfig& config, const std::string& module) {
  if (module == "out_proj") return {{"out_proj", Range(config.hidden)}};
  const int64_t values = config.num_value_heads / config.num_key_heads;
  DimExtent fused{.dim = Dim::kKeyHead, .units = config.num_key_heads};
  fused.parts = {config.key_head_dim,
                 config.key_head_dim,
                 values * config.value_head_dim,
                 values * config.value_head_dim,
                 values,
                 values};
  fused.packing =
      config.packing == GdnPacking::kMegatron ? Packing::kPartMajor : Packing::kUnitMajor;
  const auto parts = [&](size_t first, size_t end) {
    DimExtent some = fused;
    some.parts.assign(fused.parts.begin() + first, fused.parts.begin() + end);
    return some;
  };
  if (module == "in_proj_qkvz") {
    const DimExtent qkvz = parts(0, 4);
    return {Part("in_proj_qkv", qkvz, {0, 1, 2}), Part("in_proj_z", qkvz, {3})};
  }
  if (module == "in_proj_ba") {
    const DimExtent ba = parts(4, 6);
    return {Part("in_proj_b", ba, {0}), Part("in_proj_a", ba, {1})};
  }
  if (module != "in_proj") return {};
  return {Part("in_proj_qkv", fused, {0, 1, 2}), Part("in_proj_z", fused, {3}),
          Part("in_proj_b", fused, {4}), Part("in_proj_a", fused, {5})};
}

// DeepSeek's names; every packing is theirs.
std::vector<SubProjection> Latent(const LatentAttentionConfig& config, const std::string& module) {
  const int64_t rotary = config.qk_pos_emb_head_dim;
  if (module == "linear_q_down_proj") return {{"q_a_proj", Range(config.q_lora_rank)}};
  if (module == "linear_kv_down_proj")
    return {{"kv_a_proj_with_mqa", Range(config.kv_lora_rank + rotary)}};
  if (module == "linear_q_up_proj")
    return {{"q_b_proj", Range(config.num_heads * (config.qk_head_dim + rotary))}};
  if (module == "linear_kv_up_proj")
    return {{"kv_b_proj", Range(config.num_heads * (config.qk_head_dim + config.v_head_dim))}};
  if (module == "linear_proj") return {{"o_proj", Range(config.hidden)}};
  return {};
}

std::vector<SubProjection> MlpParts(const MlpConfig& config, const std::string& module) {
  if (module == "linear_fc2") return {{"down_proj", Range(config.hidden)}};
  if (module != "linear_fc1") return {};
  if (config.activation != MlpActivation::kSwiglu) return {{"up_proj", Range(config.ffn)}};
  DimExtent fused{
      .dim = Dim::kFfn, .units = config.ffn, .parts = {1, 1}, .packing = Packing::kPartMajor};
  return {Part("gate_proj", fused, {0}), Part("up_proj", fused, {1})};
}

}  // namespace

std::string ModuleOf(const std::string& param) { return param.substr(0, param.rfind('.')); }

namespace {

// Of a linear module itself.
std::optional<HfModule> LinearModuleOf(const ModelConfig& model, const std::string& module) {
  const std::vector<std::string> path = absl::StrSplit(module, '.');
  int layer = -1;
  const bool shared = path.size() == 6 && path[4] == "shared_experts";
  if ((path.size() != 5 && !shared) || path[0] != "decoder" || !absl::SimpleAtoi(path[2], &layer))
    return std::nullopt;
  if (layer < 0 || layer >= static_cast<int>(model.layers.size())) return std::nullopt;
  const DecoderLayerConfig& config = model.layers[layer];
  HfModule result;
  if (shared && config.shared_expert) {
    result = {absl::StrCat("layers.", layer, ".mlp.shared_expert"),
              MlpParts(config.shared_expert->mlp, path[5])};
  } else if (path[3] == "mlp" && config.mlp) {
    result = {absl::StrCat("layers.", layer, ".mlp"), MlpParts(*config.mlp, path[4])};
  } else if (const auto* attention = std::get_if<SelfAttentionConfig>(&config.mixer)) {
    result = {absl::StrCat("layers.", layer, ".self_attn"), Attention(*attention, path[4])};
  } else if (const auto* latent = std::get_if<LatentAttentionConfig>(&config.mixer)) {
    result = {absl::StrCat("layers.", layer, ".self_attn"), Latent(*latent, path[4])};
  } else if (const auto* gdn = std::get_if<GatedDeltaNetConfig>(&config.mixer)) {
    result = {absl::StrCat("layers.", layer, ".linear_attn"), Gdn(*gdn, path[4])};
  }
  if (result.parts.empty()) return std::nullopt;
  return result;
}

// A sub-projection with an adapter of its own, ".linear_qkv.q_proj": its rows, as the fused ones of
// that sub-projection lie one behind the other.
std::optional<HfModule> SubModuleOf(const ModelConfig& model, const std::string& module) {
  const std::optional<HfModule> fused = LinearModuleOf(model, ModuleOf(module));
  if (!fused) return std::nullopt;
  for (const SubProjection& part : fused->parts) {
    if (!module.ends_with("." + part.name)) continue;
    std::vector<int64_t> order = part.rows;
    std::sort(order.begin(), order.end());
    SubProjection sub{.name = part.name, .rows = {}};
    for (const int64_t row : part.rows)
      sub.rows.push_back(std::lower_bound(order.begin(), order.end(), row) - order.begin());
    return HfModule{fused->parent, {sub}};
  }
  return std::nullopt;
}

}  // namespace

std::optional<HfModule> HfModuleOf(const ModelConfig& model, const std::string& module) {
  const std::optional<HfModule> linear = LinearModuleOf(model, module);
  return linear ? linear : SubModuleOf(model, module);
}

}  // namespace sumonce

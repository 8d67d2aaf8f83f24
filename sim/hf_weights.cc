#include "sim/hf_weights.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sim/hf_names.h"

namespace sumonce {
namespace {

std::vector<int64_t> All(int64_t count) {
  std::vector<int64_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// Rows of a matrix with `columns` columns, of these only [from, to).
std::vector<int64_t> SubMatrix(const std::vector<int64_t>& rows, int64_t columns, int64_t from,
                               int64_t to) {
  std::vector<int64_t> indices;
  for (int64_t row : rows) {
    for (int64_t column = from; column < to; ++column) indices.push_back(row * columns + column);
  }
  return indices;
}

std::vector<int64_t> RowRange(int64_t from, int64_t to) {
  std::vector<int64_t> rows(to - from);
  std::iota(rows.begin(), rows.end(), from);
  return rows;
}

// weight, lora_A or lora_B of a linear module.
std::vector<HfTensor> Linear(const HfModule& module, const std::string& leaf, const Param& param) {
  std::vector<HfTensor> tensors;
  const Dims& dims = param.shards.whole();
  const int64_t count = static_cast<int64_t>(module.parts.size());
  const int64_t r = leaf == "lora_A" ? dims[0].extent() : dims.back().extent();
  for (int64_t p = 0; p < count; ++p) {
    const SubProjection& part = module.parts[p];
    HfTensor tensor{.name = absl::StrCat(module.parent, ".", part.name, ".", leaf), .indices = {}};
    const int64_t from = r / count * p;
    const int64_t to = r / count * (p + 1);
    if (leaf == "weight") {
      const int64_t columns = Count(dims) / dims[0].extent();
      tensor.indices = SubMatrix(part.rows, columns, 0, columns);
    } else if (leaf == "lora_A") {
      const int64_t columns = Count(dims) / r;
      tensor.indices = SubMatrix(RowRange(from, to), columns, 0, columns);
    } else {
      tensor.indices = SubMatrix(part.rows, r, from, to);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Channels q | k | v, each head-major, whatever the packing.
std::vector<int64_t> ConvIndices(const Dims& dims) {
  const int64_t taps = dims[1].extent();
  std::vector<int64_t> rows;
  for (size_t part = 0; part < dims[0].parts.size(); ++part) {
    for (int64_t unit = 0; unit < dims[0].units; ++unit) {
      for (int64_t i = 0; i < dims[0].parts[part]; ++i)
        rows.push_back(dims[0].Index(unit, part, i));
    }
  }
  return SubMatrix(rows, taps, 0, taps);
}

// "decoder.layers.3" -> "layers.3".
std::string LayerOf(const std::string& name) {
  const size_t begin = name.find("layers.");
  return name.substr(begin, name.find('.', begin + 7) - begin);
}

std::string NormName(const std::string& name) {
  const std::string layer = LayerOf(name);
  if (name.find("linear_fc1") != std::string::npos) return layer + ".post_attention_layernorm";
  return layer + ".input_layernorm";
}

// The norm of a latent, fused or not: "layers.0.self_attn.q_a_layernorm"; empty for another
// parameter.
std::string LatentNormName(const ModelConfig& model, const std::string& name) {
  const bool query = name.find(".linear_q_up_proj.layer_norm") != std::string::npos ||
                     name.ends_with(".q_layernorm.weight");
  const bool key = name.find(".linear_kv_up_proj.layer_norm") != std::string::npos ||
                   name.ends_with(".kv_layernorm.weight");
  if (!query && !key) return "";
  const std::string layer = LayerOf(name);
  const size_t index = std::stoul(layer.substr(layer.find('.') + 1));
  if (!std::holds_alternative<LatentAttentionConfig>(model.layers[index].mixer)) return "";
  return layer + (query ? ".self_attn.q_a_layernorm" : ".self_attn.kv_a_layernorm");
}

}  // namespace

bool HasHfNames(const SafetensorsReader& file) { return file.tensors().contains("param.embed"); }

std::vector<HfTensor> HfTensorsOf(const ModelConfig& model, const Param& param) {
  const std::string& name = param.name;
  const Dims& dims = param.shards.whole();
  const std::string leaf = name.substr(name.rfind('.') + 1);
  if (name == "embedding.word_embeddings.weight") return {{"embed", All(Count(dims))}};
  if (name == "decoder.final_layernorm.weight") return {{"final_norm", All(Count(dims))}};
  if (name == "output_layer.weight") return {{"lm_head", All(Count(dims))}};
  if (const std::string norm = LatentNormName(model, name); !norm.empty())
    return {{norm, All(Count(dims))}};
  if (leaf == "layer_norm_weight" || name.ends_with("input_layernorm.weight"))
    return {{NormName(name), All(Count(dims))}};
  if (name.ends_with("conv1d.weight"))
    return {{LayerOf(name) + ".linear_attn.conv1d", ConvIndices(dims)}};
  if (name.ends_with("out_norm.weight"))
    return {{LayerOf(name) + ".linear_attn.norm", All(Count(dims))}};
  if (leaf == "A_log" || leaf == "dt_bias")
    return {{LayerOf(name) + ".linear_attn." + leaf, All(Count(dims))}};
  if (name.ends_with("q_layernorm.weight"))
    return {{LayerOf(name) + ".self_attn.q_norm", All(Count(dims))}};
  if (name.ends_with("k_layernorm.weight"))
    return {{LayerOf(name) + ".self_attn.k_norm", All(Count(dims))}};
  const std::optional<HfModule> module = HfModuleOf(model, ModuleOf(name));
  return module ? Linear(*module, leaf, param) : std::vector<HfTensor>();
}

absl::StatusOr<Weights> ImportHfWeights(const Scenario& scenario, const SafetensorsReader& file,
                                        const ParamStore& params) {
  Weights weights;
  for (const Param& param : params.all()) {
    Tensor whole(param.shards.whole());
    for (const HfTensor& tensor : HfTensorsOf(scenario.model, param)) {
      SUMONCE_ASSIGN_OR_RETURN(const std::vector<double> values, file.Read("param." + tensor.name));
      if (values.size() != tensor.indices.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat(file.path(), ": param.", tensor.name, " has ", values.size(),
                         " elements, the scenario's ", param.name, " ", Describe(whole.dims()),
                         " wants ", tensor.indices.size()));
      }
      for (size_t i = 0; i < values.size(); ++i) whole.data()[tensor.indices[i]] = values[i];
    }
    weights[param.name] = whole;
  }
  return weights;
}

}  // namespace sumonce

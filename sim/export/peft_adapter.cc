#include "sim/export/peft_adapter.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "sim/hf_names.h"
#include "sim/simulator.h"
#include "spmd/whole.h"

namespace sumonce {
namespace {

// In front of every name of a PEFT file of a causal language model.
constexpr absl::string_view kPrefix = "base_model.model.model.";

// What rank 0 writes of a parameter: its shards joined over tp, or rank 0's own copy.
Tensor Exported(const Param& param, const Mesh& mesh, const RunRecord& record) {
  std::vector<Tensor> ranks;
  for (const RankRecords& rank : record.ranks)
    ranks.push_back(rank.back().params.at(param.name).weight_after);
  return Join(param.shards.Target(mesh), mesh, ranks).whole;
}

TensorToWrite Rows(const Tensor& matrix, const std::vector<int64_t>& rows, int64_t columns) {
  TensorToWrite tensor{.dtype = DType::kFloat32,
                       .shape = {static_cast<int64_t>(rows.size()), columns},
                       .values = {}};
  for (int64_t row : rows) {
    tensor.values.insert(tensor.values.end(), matrix.data() + row * columns,
                         matrix.data() + (row + 1) * columns);
  }
  return tensor;
}

// lora_alpha as PEFT's files have it: an integer where it is one.
nlohmann::ordered_json Alpha(double alpha) {
  if (alpha == std::floor(alpha)) return static_cast<int64_t>(alpha);
  return alpha;
}

std::string Config(const Scenario& scenario, const std::map<std::string, TensorToWrite>& tensors) {
  const LoraConfig& lora = scenario.model.common.lora;
  std::set<std::string> targets;
  // Modules of another rank than r: the block-diagonal form of separate adapters
  // (lora.separate_adapters). Each keeps lora_alpha / r.
  nlohmann::ordered_json rank_pattern = nlohmann::ordered_json::object(),
                         alpha_pattern = rank_pattern;
  for (const auto& [name, tensor] : tensors) {
    const std::string module = name.substr(kPrefix.size(), name.find(".lora_") - kPrefix.size());
    targets.insert(module.substr(module.rfind('.') + 1));
    if (!name.ends_with(".lora_A.weight") || tensor.shape[0] == lora.r) continue;
    rank_pattern[module] = tensor.shape[0];
    alpha_pattern[module] = Alpha(lora.scaling * static_cast<double>(tensor.shape[0]));
  }
  nlohmann::ordered_json config;
  config["peft_type"] = "LORA";
  config["task_type"] = "CAUSAL_LM";
  config["base_model_name_or_path"] = nullptr;
  config["inference_mode"] = true;
  config["r"] = lora.r;
  config["lora_alpha"] = Alpha(lora.scaling * static_cast<double>(lora.r));
  config["rank_pattern"] = rank_pattern;
  config["alpha_pattern"] = alpha_pattern;
  config["lora_dropout"] = lora.dropout;
  config["lora_bias"] = lora.bias;
  config["use_rslora"] = false;
  config["use_dora"] = false;
  config["bias"] = "none";
  config["fan_in_fan_out"] = false;
  config["init_lora_weights"] = true;
  config["modules_to_save"] = nullptr;
  config["target_modules"] = targets;
  return config.dump(2) + "\n";
}

// Before either file is written: half an adapter beside another's other half would be worse than
// none.
absl::Status CheckAbsent(const std::string& path) {
  if (!std::filesystem::exists(path)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(path, " exists; --force writes over it"));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat(path, " cannot be written"));
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, TensorToWrite> AdapterTensors(const Scenario& scenario,
                                                    const RunRecord& record) {
  std::map<std::string, TensorToWrite> tensors;
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  Model model(EffectiveModel(scenario));
  for (const Param& param : model.params().all()) {
    const bool is_A = param.name.ends_with(".lora_A");
    const bool is_bias = param.name.ends_with(".lora_B_bias");
    if (!is_A && !is_bias && !param.name.ends_with(".lora_B")) continue;
    const std::optional<HfModule> module = HfModuleOf(scenario.model, ModuleOf(param.name));
    if (!module) continue;
    const Tensor matrix = Exported(param, mesh, record);
    const int64_t r = is_A ? param.shards.whole()[0].extent()
                           : (is_bias ? 1 : param.shards.whole().back().extent());
    for (const SubProjection& part : module->parts) {
      const std::string path = absl::StrCat(kPrefix, module->parent, ".", part.name);
      if (is_A) {
        tensors[path + ".lora_A.weight"] = {
            .dtype = DType::kFloat32,
            .shape = {r, matrix.count() / r},
            .values = {matrix.values().begin(), matrix.values().end()}};
      } else {
        TensorToWrite& tensor = tensors[path + (is_bias ? ".lora_B.bias" : ".lora_B.weight")];
        tensor = Rows(matrix, part.rows, r);
        if (is_bias) tensor.shape.pop_back();
      }
    }
  }
  return tensors;
}

absl::Status ExportAdapter(const Scenario& scenario, const RunRecord& record,
                           const std::string& dir, bool overwrite) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return absl::UnavailableError(absl::StrCat(dir, " cannot be made: ", error.message()));
  const std::string config = dir + "/adapter_config.json";
  const std::string model = dir + "/adapter_model.safetensors";
  for (const std::string& path : {config, model}) {
    if (!overwrite) SUMONCE_RETURN_IF_ERROR(CheckAbsent(path));
  }
  const std::map<std::string, TensorToWrite> tensors = AdapterTensors(scenario, record);
  SUMONCE_RETURN_IF_ERROR(WriteText(config, Config(scenario, tensors)));
  return WriteSafetensors(model, tensors, {{"format", "pt"}}, overwrite);
}

}  // namespace sumonce

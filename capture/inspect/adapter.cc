#include "capture/inspect/adapter.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "capture/folder.h"
#include "capture/json_fields.h"

namespace sumonce::inspect {
namespace {

namespace fs = std::filesystem;
using capture::JsonField;
using capture::Problems;

constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;
constexpr int64_t kMaxRank = int64_t{1} << 20;
constexpr char kConfigFile[] = "adapter_config.json";
constexpr char kModelFile[] = "adapter_model.safetensors";
// In front of every name of a PEFT file.
constexpr std::string_view kPrefix = "base_model.model.";

absl::StatusOr<std::string> ReadConfigText(const std::string& dir, const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(dir, error))
    return absl::NotFoundError(absl::StrCat(dir, ": no such folder; expected an adapter's"));
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(
        path, ": no such file; expected the folder that PEFT's save_pretrained wrote, ", "with ",
        kConfigFile, " and ", kModelFile));
  }
  return capture::ReadTextFile(path, kMaxConfigBytes);
}

bool BoolOr(const JsonField& config, const std::string& key, bool absent) {
  const auto field = config.Find(key);
  return field ? field->Bool().value_or(absent) : absent;
}

std::vector<std::string> Names(const std::optional<JsonField>& list) {
  std::vector<std::string> names;
  if (!list) return names;
  for (const JsonField& element : list->Elements()) {
    if (const auto name = element.Text()) names.push_back(*name);
  }
  return names;
}

void ReadTargets(const JsonField& root, AdapterConfig& config) {
  const auto targets = root.Find("target_modules");
  if (!targets || targets->json().is_string()) return;
  config.targets_are_names = true;
  config.target_modules = Names(targets);
  for (const std::string& target : config.target_modules)
    config.targets_are_names = config.targets_are_names && IsPlainName(target);
}

AdapterConfig ReadConfig(const JsonField& root) {
  AdapterConfig config;
  if (const auto type = root.Require("peft_type")) {
    const auto text = type->Text();
    if (text && *text != "LORA") type->Expected("\"LORA\": other adapters are not inspected");
  }
  if (const auto r = root.Require("r")) config.r = r->Integer(1, kMaxRank).value_or(1);
  if (const auto alpha = root.Require("lora_alpha")) {
    config.lora_alpha = alpha->Number().value_or(1);
    if (config.lora_alpha <= 0) alpha->Expected("a number above 0");
  }
  config.use_rslora = BoolOr(root, "use_rslora", false);
  config.use_dora = BoolOr(root, "use_dora", false);
  config.lora_bias = BoolOr(root, "lora_bias", false);
  if (const auto bias = root.Find("bias")) config.bias = bias->Text().value_or("none");
  ReadTargets(root, config);
  config.modules_to_save = Names(root.Find("modules_to_save"));
  if (const auto ranks = root.Find("rank_pattern")) {
    for (const auto& [key, value] : ranks->Members()) {
      if (const auto rank = value.Integer(1, kMaxRank)) config.rank_pattern[key] = *rank;
    }
  }
  if (const auto alphas = root.Find("alpha_pattern")) {
    for (const auto& [key, value] : alphas->Members()) {
      if (const auto alpha = value.Number()) config.alpha_pattern[key] = *alpha;
    }
  }
  return config;
}

// The name of a tensor, taken apart: "<module>.<what>", what being "lora_A.weight",
// "lora_A.default.weight", "lora_embedding_A", ...
struct TensorName {
  std::string module;
  enum class What { kA, kB, kMagnitude, kBias, kOther } what = What::kOther;
};

TensorName TakeApart(std::string_view tensor) {
  if (tensor.starts_with(kPrefix)) tensor.remove_prefix(kPrefix.size());
  const size_t at = tensor.find(".lora_");
  if (at == std::string_view::npos) return {std::string(tensor), TensorName::What::kOther};
  TensorName name{std::string(tensor.substr(0, at)), TensorName::What::kOther};
  std::vector<std::string> rest = absl::StrSplit(ToAbsl(tensor.substr(at + 1)), '.');
  if (rest.size() == 3) rest.erase(rest.begin() + 1);  // the adapter's name
  const std::string what = absl::StrJoin(rest, ".");
  if (what == "lora_A.weight" || rest[0] == "lora_embedding_A") name.what = TensorName::What::kA;
  if (what == "lora_B.weight" || rest[0] == "lora_embedding_B") name.what = TensorName::What::kB;
  if (rest[0] == "lora_magnitude_vector") name.what = TensorName::What::kMagnitude;
  if (what == "lora_B.bias") name.what = TensorName::What::kBias;
  return name;
}

// The first number in the path is the layer's.
void SetLayer(AdapterModule& module) {
  std::vector<std::string> parts = absl::StrSplit(module.path, '.');
  for (std::string& part : parts) {
    int number = -1;
    if (module.in_layer() || !absl::SimpleAtoi(part, &number) || number < 0) continue;
    module.layer = number;
    part = "*";
  }
  module.family = absl::StrJoin(parts, ".");
}

void AddTensors(Adapter& adapter) {
  std::map<std::string, AdapterModule> modules;
  for (const auto& [tensor, info] : adapter.reader.tensors()) {
    const TensorName name = TakeApart(tensor);
    if (name.what == TensorName::What::kOther) {
      adapter.others.push_back(tensor);
      continue;
    }
    AdapterModule& module = modules[name.module];
    module.path = name.module;
    if (name.what == TensorName::What::kA) module.lora_A = Factor{tensor, info};
    if (name.what == TensorName::What::kB) module.lora_B = Factor{tensor, info};
    module.magnitude = module.magnitude || name.what == TensorName::What::kMagnitude;
    module.bias = module.bias || name.what == TensorName::What::kBias;
  }
  for (auto& [path, module] : modules) {
    SetLayer(module);
    adapter.modules.push_back(std::move(module));
  }
  std::stable_sort(adapter.modules.begin(), adapter.modules.end(),
                   [](const auto& a, const auto& b) { return a.layer < b.layer; });
}

// The pattern's entry for the module; `unclear` if one with wildcards might be meant.
template <typename T>
std::optional<T> FromPattern(const std::map<std::string, T>& pattern, const std::string& module,
                             bool* unclear) {
  *unclear = false;
  for (const auto& [key, value] : pattern) {
    if (!IsPlainName(key)) *unclear = true;
    if (NamesModule(key, module)) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view AdapterModule::leaf() const {
  return std::string_view(path).substr(path.rfind('.') + 1);
}

std::string_view AdapterModule::parent() const {
  const size_t dot = path.rfind('.');
  return std::string_view(path).substr(0, dot == std::string::npos ? 0 : dot);
}

int Adapter::layers() const {
  std::set<int> layers;
  for (const AdapterModule& module : modules) {
    if (module.in_layer()) layers.insert(module.layer);
  }
  return static_cast<int>(layers.size());
}

int Adapter::last_layer() const { return modules.empty() ? -1 : modules.back().layer; }

absl::StatusOr<Adapter> ReadAdapter(const std::string& dir) {
  Adapter adapter;
  adapter.dir = dir;
  const std::string config_path = absl::StrCat(dir, "/", kConfigFile);
  SUMONCE_ASSIGN_OR_RETURN(const std::string text, ReadConfigText(dir, config_path));
  Problems problems(config_path);
  const auto json = capture::ParseJson(text, "", problems);
  if (json) adapter.config = ReadConfig(JsonField(*json, "", problems));
  SUMONCE_RETURN_IF_ERROR(problems.ToStatus());

  const std::string model_path = absl::StrCat(dir, "/", kModelFile);
  auto reader = SafetensorsReader::Open(model_path);
  std::error_code error;
  if (absl::IsNotFound(reader.status()) && fs::exists(dir + "/adapter_model.bin", error)) {
    return absl::NotFoundError(absl::StrCat(
        model_path, ": no such file, but there is an adapter_model.bin, a pickle that runs code ",
        "when it is read; load the adapter with PEFT and save_pretrained it again"));
  }
  if (!reader.ok()) return reader.status();
  adapter.reader = *std::move(reader);
  AddTensors(adapter);
  return adapter;
}

std::optional<int64_t> RankOf(const AdapterConfig& config, const std::string& module) {
  bool unclear = false;
  const auto rank = FromPattern(config.rank_pattern, module, &unclear);
  if (rank || unclear) return rank;
  return config.r;
}

std::optional<double> AlphaOf(const AdapterConfig& config, const std::string& module) {
  bool unclear = false;
  const auto alpha = FromPattern(config.alpha_pattern, module, &unclear);
  if (alpha || unclear) return alpha;
  return config.lora_alpha;
}

std::optional<double> ScalingOf(const AdapterConfig& config, const AdapterModule& module) {
  const auto alpha = AlphaOf(config, module.path);
  if (!alpha || !module.lora_A || module.lora_A->rows() == 0) return std::nullopt;
  const double r = static_cast<double>(module.lora_A->rows());
  return *alpha / (config.use_rslora ? std::sqrt(r) : r);
}

bool NamesModule(const std::string& key, const std::string& module) {
  return module == key || module.ends_with("." + key);
}

bool IsPlainName(const std::string& key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace sumonce::inspect

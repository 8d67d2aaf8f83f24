#include "sim/hf_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/text.h"
#include "nlohmann/json.hpp"
#include "sim/reader/source_text.h"

namespace sumonce {
namespace {

using Json = nlohmann::json;

// Decoders whose layers are those of layers/: norms in front of attention and MLP, rope, a gated
// silu MLP. Others differ in ways that a config does not always say.
constexpr const char* kModelTypes[] = {"llama",      "mistral", "qwen2",       "qwen3",
                                       "qwen3_next", "qwen3_5", "qwen3_5_text"};

constexpr int64_t kMaxExtent = int64_t{1} << 30;

// One JSON file's keys; mistakes name the file and the key.
class JsonKeys {
 public:
  JsonKeys(std::string path, const char* name, std::vector<Mistake>& mistakes)
      : path_(std::move(path)), mistakes_(mistakes) {
    std::error_code error;
    if (std::filesystem::is_directory(path_, error)) path_ += std::string("/") + name;
    const absl::StatusOr<std::string> text = ReadFileText(path_);
    if (!text.ok()) {
      Add(std::string(FromAbsl(text.status().message())));
      return;
    }
    json_ = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) {
      Add(absl::StrCat("no JSON object, expected Hugging Face's ", name));
      json_ = Json();
    }
  }

  bool ok() const { return json_.is_object(); }
  // Multimodal models keep the decoder's keys one level down.
  void Enter(const char* key) {
    if (json_.contains(key) && json_[key].is_object()) json_ = Json(json_[key]);
  }

  void Add(std::string message) {
    mistakes_.push_back({.location = {.file = path_}, .message = std::move(message)});
  }

  bool Has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  std::optional<int64_t> Int(const char* key, int64_t least = 1) {
    if (!Has(key)) return std::nullopt;
    const Json& value = json_[key];
    if (value.is_number_integer() && value >= least && value <= kMaxExtent)
      return value.get<int64_t>();
    Add(absl::StrCat(key, ": ", Short(value), ", expected an integer from ", least, " to ",
                     kMaxExtent));
    return std::nullopt;
  }
  int64_t Needed(const char* key) {
    if (!Has(key)) Add(absl::StrCat(key, " is missing, expected an integer"));
    return Int(key).value_or(1);
  }
  bool Flag(const char* key, bool fallback) const {
    return Has(key) && json_[key].is_boolean() ? json_[key].get<bool>() : fallback;
  }
  std::string Text(const char* key) const {
    return Has(key) && json_[key].is_string() ? json_[key].get<std::string>() : "";
  }
  // A list of strings; a single string stands for a list of one.
  std::vector<std::string> Texts(const char* key) {
    std::vector<std::string> texts;
    if (!Has(key)) return texts;
    const Json list = json_[key].is_array() ? json_[key] : Json::array({json_[key]});
    for (const Json& entry : list) {
      if (entry.is_string()) {
        texts.push_back(entry.get<std::string>());
      } else {
        Add(absl::StrCat(key, ": ", Short(entry), ", expected strings"));
      }
    }
    return texts;
  }
  // Something that is there and not empty, false or zero.
  bool Uses(const char* key) const {
    if (!Has(key)) return false;
    const Json& value = json_[key];
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number()) return value != 0;
    if (value.is_string()) return value != "none" && value != "";
    return !value.empty();
  }
  void Refuse(const char* key, const char* what) {
    if (Uses(key)) Add(absl::StrCat(key, ": ", Short(json_[key]), ": ", what));
  }

  static std::string Short(const Json& value) {
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
  }

 private:
  std::string path_;
  std::vector<Mistake>& mistakes_;
  Json json_;
};

// Megatron's fused module of a Hugging Face linear.
std::string TargetOf(const std::string& name) {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> kModules = {
      {"linear_qkv", {"q_proj", "k_proj", "v_proj", "linear_qkv"}},
      {"linear_proj", {"o_proj", "linear_proj"}},
      {"linear_fc1", {"gate_proj", "up_proj", "linear_fc1"}},
      {"linear_fc2", {"down_proj", "linear_fc2"}},
      {"in_proj",
       {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "in_proj_qkvz", "in_proj_ba",
        "in_proj"}},
      {"out_proj", {"out_proj"}}};
  for (const auto& [module, names] : kModules) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return module;
  }
  return "";
}

class ScenarioWriter {
 public:
  explicit ScenarioWriter(const HfRun& run)
      : run_(run), model_(run.config, "config.json", result_.mistakes) {}

  HfScenario Write() {
    if (!model_.ok()) return std::move(result_);
    const std::string type = model_.Text("model_type");
    model_.Enter("text_config");
    if (std::find(std::begin(kModelTypes), std::end(kModelTypes), type) == std::end(kModelTypes)) {
      model_.Add(absl::StrCat("model_type: \"", Printable(type),
                              "\", expected one whose layers are "
                              "known: ",
                              absl::StrJoin(kModelTypes, ", "),
                              "; of another write a scenario (docs/EXTENDING.md)"));
      return std::move(result_);
    }
    next_ = type.find("qwen3_next") == 0 || type.find("qwen3_5") == 0;
    qwen3_ = type.find("qwen3") == 0;
    RefuseUnmodelled();
    Line("# From ", run_.config, run_.adapter.empty() ? "" : " and ", run_.adapter, ".");
    Line("mesh { tp: ", run_.mesh.tp, " dp: ", run_.mesh.dp, " }");
    if (run_.sequence_parallel) Line("sequence_parallel: true");
    WriteModel();
    WriteLora();
    Line("data { sequence: ", 1024 * run_.mesh.tp, " micro_batch: 1 microbatches: 1 }");
    if (!run_.finalizer.empty()) Line("finalizer: \"", run_.finalizer, "\"");
    return std::move(result_);
  }

 private:
  template <typename... Parts>
  void Line(const Parts&... parts) {
    absl::StrAppend(&result_.text, parts...);
    result_.text += '\n';
  }

  void RefuseUnmodelled() {
    const char* experts = "experts are not modelled yet, expected a dense model";
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts",
                            "num_experts_per_tok", "moe_intermediate_size"})
      model_.Refuse(key, experts);
    for (const char* key : {"kv_lora_rank", "q_lora_rank"})
      model_.Refuse(key, "multi-latent attention is not read from a config yet");
    if (run_.gather_region && !model_.Has("linear_num_key_heads"))
      result_.notes.push_back(
          "--gather-region: the model has no GatedDeltaNet, it changes nothing");
    model_.Refuse("num_nextn_predict_layers", "multi-token prediction is not modelled yet");
  }

  std::string Activation() {
    const std::string act = model_.Text("hidden_act");
    if (act == "silu" || act.empty()) return "SWIGLU";
    model_.Add(absl::StrCat("hidden_act: \"", act,
                            "\", expected silu with a gate; write a scenario with mlp { "
                            "activation: ... } for another"));
    return "SWIGLU";
  }

  // Of each layer, in Hugging Face's words.
  std::vector<std::string> LayerTypes() {
    const int64_t layers = model_.Needed("num_hidden_layers");
    if (layers > 1024) {
      model_.Add(absl::StrCat("num_hidden_layers: ", layers, ", expected at most 1024"));
      return {};
    }
    std::vector<std::string> types = model_.Texts("layer_types");
    if (types.empty()) {
      const int64_t interval = model_.Int("full_attention_interval").value_or(next_ ? 4 : 1);
      for (int64_t i = 0; i < layers; ++i)
        types.push_back((i + 1) % interval == 0 ? "full_attention" : "linear_attention");
    } else if (static_cast<int64_t>(types.size()) != layers) {
      model_.Add(absl::StrCat("layer_types has ", types.size(), " entries, expected ", layers,
                              ", as num_hidden_layers says"));
    }
    return types;
  }

  std::string AttentionText() {
    const int64_t heads = model_.Needed("num_attention_heads");
    const int64_t hidden = model_.Int("hidden_size").value_or(1);
    const int64_t groups = model_.Int("num_key_value_heads").value_or(heads);
    const int64_t dim = model_.Int("head_dim").value_or(std::max<int64_t>(hidden / heads, 1));
    const bool gate = model_.Flag("attn_output_gate", next_);
    return absl::StrCat("self_attention { num_heads: ", heads, " num_query_groups: ", groups,
                        " head_dim: ", dim, qwen3_ ? " qk_layernorm: true" : "",
                        gate ? " output_gate: true" : "", " }");
  }

  std::string LinearAttentionText() {
    return absl::StrCat("linear_attention { num_key_heads: ", model_.Needed("linear_num_key_heads"),
                        " num_value_heads: ", model_.Needed("linear_num_value_heads"),
                        " key_head_dim: ", model_.Needed("linear_key_head_dim"),
                        " value_head_dim: ", model_.Needed("linear_value_head_dim"),
                        " conv_kernel_dim: ", model_.Int("linear_conv_kernel_dim").value_or(4),
                        run_.gather_region ? " mode: GATHER_REGION packing: PER_KEY_HEAD" : "",
                        " }");
  }

  void WriteModel() {
    const int64_t vocab = model_.Needed("vocab_size");
    const int64_t unit = int64_t{128} * run_.mesh.tp;
    const int64_t padded = (vocab + unit - 1) / unit * unit;
    if (padded != vocab)
      result_.notes.push_back(absl::StrCat("the vocabulary of ", vocab, " is padded to ", padded));
    Line("model {");
    Line("  vocab: ", padded);
    Line("  hidden: ", model_.Needed("hidden_size"));
    if (next_) Line("  norm: ZERO_CENTERED");
    const std::string mlp = absl::StrCat("mlp { ffn: ", model_.Needed("intermediate_size"),
                                         " activation: ", Activation(), " }");
    std::optional<std::string> full, linear;
    for (const std::string& type : LayerTypes()) {
      if (type == "linear_attention") {
        if (!linear) linear = LinearAttentionText();
      } else if (type != "full_attention" && type != "sliding_attention") {
        model_.Add(absl::StrCat("layer_types: \"", type,
                                "\", expected full_attention, sliding_attention or "
                                "linear_attention"));
        continue;
      } else if (!full) {
        full = AttentionText();
      }
      Line("  layer { ", type == "linear_attention" ? *linear : *full, " ", mlp, " }");
    }
    Line("}");
    if (model_.Flag("tie_word_embeddings", false)) {
      result_.notes.push_back(
          "tie_word_embeddings: word embedding and output layer are judged apart; tied, their "
          "gradients add up, both cut over tp alike");
    }
    if (model_.Flag("attention_bias", false) || model_.Text("model_type") == "qwen2") {
      result_.notes.push_back(
          "biases of q, k and v are left out: cut over tp with their rows, they need no sum");
    }
  }

  void WriteLora() {
    if (run_.adapter.empty()) return;
    JsonKeys adapter(run_.adapter, "adapter_config.json", result_.mistakes);
    if (!adapter.ok()) return;
    adapter.Refuse("use_dora", "DoRA is not modelled");
    adapter.Refuse("bias", "trained biases are not modelled");
    adapter.Refuse("modules_to_save", "modules trained as a whole are not read yet");
    adapter.Refuse("layers_to_transform", "adapters on some layers only are not read yet");
    adapter.Refuse("exclude_modules", "exceptions are not read yet");
    adapter.Refuse("target_parameters", "adapters of single parameters are not read yet");
    adapter.Refuse("trainable_token_indices", "trained rows of the embedding are not read yet");
    adapter.Refuse("layer_replication", "repeated layers are not read yet");
    adapter.Refuse("lora_bias", "an adapter's bias is not read yet");
    if (const std::string peft = adapter.Text("peft_type"); !peft.empty() && peft != "LORA")
      adapter.Add(absl::StrCat("peft_type: \"", peft, "\", expected LORA"));
    std::vector<std::string> modules;
    for (const std::string& name : adapter.Texts("target_modules")) {
      if (name == "all-linear") {
        modules = {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "in_proj", "out_proj"};
        break;
      }
      const std::string module = TargetOf(name.substr(name.rfind('.') + 1));
      if (NamesALayer(name)) {
        adapter.Add(absl::StrCat("target_modules: \"", Printable(name),
                                 "\": adapters on some layers only are not read yet, expected a "
                                 "name without a layer's number"));
      } else if (module.empty()) {
        adapter.Add(absl::StrCat("target_modules: \"", Printable(name),
                                 "\", expected linears of the decoder such as q_proj, o_proj, "
                                 "gate_proj, down_proj, in_proj_qkv, out_proj or all-linear"));
      } else if (std::find(modules.begin(), modules.end(), module) == modules.end()) {
        modules.push_back(module);
      }
    }
    if (modules.empty() && result_.mistakes.empty())
      adapter.Add("target_modules is missing or empty, expected the adapter's linears");
    std::string targets;
    for (const std::string& module : modules) {
      if (IsOfModel(module)) absl::StrAppend(&targets, " target: \"", module, "\"");
    }
    Line("lora { r: ", adapter.Int("r").value_or(8), " lora_alpha: 16", targets, " }");
  }

  // "model.layers.3.self_attn.q_proj"
  static bool NamesALayer(const std::string& name) {
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    return std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
      return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    });
  }

  // all-linear names modules that a model without such layers lacks.
  bool IsOfModel(const std::string& module) const {
    const bool linear = result_.text.find("linear_attention {") != std::string::npos;
    const bool full = result_.text.find("self_attention {") != std::string::npos;
    if (module == "in_proj" || module == "out_proj") return linear;
    return module == "linear_fc1" || module == "linear_fc2" || full;
  }

  const HfRun& run_;
  HfScenario result_;
  JsonKeys model_;
  bool next_ = false;   // Qwen3-Next and Qwen3.5: output gate, zero-centred norms
  bool qwen3_ = false;  // norms on queries and keys
};

}  // namespace

HfScenario ScenarioOfHfConfig(const HfRun& run) { return ScenarioWriter(run).Write(); }

}  // namespace sumonce

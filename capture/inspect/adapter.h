// A PEFT LoRA adapter as its two files have it: adapter_config.json and the header of
// adapter_model.safetensors. Names and shapes only; values are read by factor_facts.h.
//
// Source of the names and of what the fields mean: huggingface/peft, peft/tuners/lora/config.py and
// peft/utils/save_and_load.py.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/safetensors.h"

namespace sumonce::inspect {

struct AdapterConfig {
  int64_t r = 0;
  double lora_alpha = 0;
  bool use_rslora = false;  // scaling lora_alpha / sqrt(r) instead of lora_alpha / r
  bool use_dora = false;
  bool lora_bias = false;
  std::string bias = "none";
  bool targets_are_names = false;  // else a regular expression or "all-linear": not looked up
  std::vector<std::string> target_modules;
  std::vector<std::string> modules_to_save;
  // Per module, where it differs from r and lora_alpha.
  std::map<std::string, int64_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;
};

// One factor's tensor.
struct Factor {
  std::string tensor;  // as the file names it
  TensorInfo info;
  int64_t rows() const { return info.shape.empty() ? 1 : info.shape[0]; }
};

struct AdapterModule {
  std::string path;              // "model.layers.3.self_attn.o_proj"
  std::string family;            // the same without its layer: "model.layers.*.self_attn.o_proj"
  int layer = -1;                // -1: in none
  std::optional<Factor> lora_A;  // [r, in]
  std::optional<Factor> lora_B;  // [out, r]
  bool magnitude = false;        // lora_magnitude_vector, of DoRA
  bool bias = false;             // lora_B.bias

  std::string_view leaf() const;    // "o_proj"
  std::string_view parent() const;  // "model.layers.3.self_attn"
  bool in_layer() const { return layer >= 0; }
};

struct Adapter {
  std::string dir;
  AdapterConfig config;
  std::vector<AdapterModule> modules;  // by layer, then by path
  std::vector<std::string> others;     // tensors that are no part of a LoRA module
  SafetensorsReader reader;

  int layers() const;      // different ones
  int last_layer() const;  // the greatest number; -1 without layers
};

// NotFound: a file is missing (with what to do about an adapter_model.bin). InvalidArgument: a file
// that cannot be one of an adapter, with all mistakes of the configuration; peft_type is not LORA.
absl::StatusOr<Adapter> ReadAdapter(const std::string& dir);

// Rank and lora_alpha that the configuration gives a module. None where a pattern with wildcards,
// which only Python's regular expressions could decide, may apply to it.
std::optional<int64_t> RankOf(const AdapterConfig& config, const std::string& module);
std::optional<double> AlphaOf(const AdapterConfig& config, const std::string& module);
// lora_alpha / r or lora_alpha / sqrt(r), with the rank that the tensors have.
std::optional<double> ScalingOf(const AdapterConfig& config, const AdapterModule& module);

// Whether PEFT would take `key` (of target_modules, rank_pattern, ...) for this module: the path or
// its end behind a dot.
bool NamesModule(const std::string& key, const std::string& module);
// Whether `key` is a name, with nothing in it but letters, digits, '_', '-' and dots.
bool IsPlainName(const std::string& key);

}  // namespace sumonce::inspect

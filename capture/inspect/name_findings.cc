// Findings from names, shapes and dtypes alone.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/inspect/findings.h"
#include "capture/inspect/wording.h"

namespace sumonce::inspect {
namespace {

using Leaves = std::set<std::string>;

void CheckPairs(const Adapter& adapter, AdapterFindings& findings) {
  std::vector<std::string> missing;
  for (const AdapterModule& module : adapter.modules) {
    if (!module.lora_A) missing.push_back(module.path + ".lora_A");
    if (!module.lora_B) missing.push_back(module.path + ".lora_B");
    if (adapter.config.use_dora && !module.magnitude)
      missing.push_back(module.path + ".lora_magnitude_vector");
    if (adapter.config.lora_bias && !module.bias) missing.push_back(module.path + ".lora_B.bias");
  }
  if (missing.empty()) return;
  std::string says = absl::StrCat(Listed(missing), missing.size() == 1 ? " is" : " are",
                                  " missing; PEFT leaves such a factor as it was initialized");
  findings.push_back({AdapterFault::kMissingKey, std::move(missing), std::move(says)});
}

bool Targeted(const AdapterConfig& config, const std::string& module) {
  return std::any_of(config.target_modules.begin(), config.target_modules.end(),
                     [&](const std::string& target) { return NamesModule(target, module); });
}

void CheckTargets(const Adapter& adapter, AdapterFindings& findings) {
  if (!adapter.config.targets_are_names) return;
  std::vector<std::string> without, beside;
  for (const std::string& target : adapter.config.target_modules) {
    const bool found = std::any_of(adapter.modules.begin(), adapter.modules.end(),
                                   [&](const auto& m) { return NamesModule(target, m.path); });
    if (!found) without.push_back(target);
  }
  for (const AdapterModule& module : adapter.modules) {
    if (!Targeted(adapter.config, module.path)) beside.push_back(module.path);
  }
  if (!without.empty()) {
    std::string says =
        absl::StrCat("target_modules names ", Listed(without), ", of which the file has no tensor");
    findings.push_back({AdapterFault::kMissingKey, std::move(without), std::move(says)});
  }
  if (!beside.empty()) {
    std::string says =
        absl::StrCat(Listed(beside), beside.size() == 1 ? " has" : " have",
                     " factors, but target_modules does not name ",
                     beside.size() == 1 ? "it" : "them", ": PEFT will not load them");
    findings.push_back({AdapterFault::kExtraKey, std::move(beside), std::move(says)});
  }
}

// "base_model.model.lm_head.weight" belongs to modules_to_save: ["lm_head"].
bool Saved(const AdapterConfig& config, const std::string& tensor) {
  if (config.bias != "none" && tensor.ends_with(".bias")) return true;
  return std::any_of(config.modules_to_save.begin(), config.modules_to_save.end(),
                     [&](const std::string& name) {
                       return absl::StrCat(".", tensor, ".").find(absl::StrCat(".", name, ".")) !=
                              std::string::npos;
                     });
}

void CheckOthers(const Adapter& adapter, AdapterFindings& findings) {
  std::vector<std::string> extra;
  for (const std::string& tensor : adapter.others) {
    if (!Saved(adapter.config, tensor)) extra.push_back(tensor);
  }
  for (const AdapterModule& module : adapter.modules) {
    if (module.magnitude && !adapter.config.use_dora)
      extra.push_back(module.path + ".lora_magnitude_vector");
    if (module.bias && !adapter.config.lora_bias && adapter.config.bias == "none")
      extra.push_back(module.path + ".lora_B.bias");
  }
  if (extra.empty()) return;
  std::string says =
      absl::StrCat(Listed(extra), extra.size() == 1 ? " is" : " are",
                   " neither a factor of LoRA nor named by the configuration (modules_to_save, "
                   "bias, use_dora, lora_bias)");
  findings.push_back({AdapterFault::kExtraKey, std::move(extra), std::move(says)});
}

// A block (self_attn of layer 3) that lacks targets which nearly all blocks of its kind have. Fewer
// than a third of the blocks may lack some: more are a model whose layers differ.
void CheckBlocks(const Adapter& adapter, AdapterFindings& findings) {
  std::map<std::string, std::map<int, Leaves>> blocks;  // parent without layer -> layer -> leaves
  std::map<std::pair<std::string, int>, std::string> parents;
  for (const AdapterModule& module : adapter.modules) {
    if (!module.in_layer()) continue;
    const std::string family = module.family.substr(0, module.family.rfind('.'));
    blocks[family][module.layer].insert(std::string(module.leaf()));
    parents[{family, module.layer}] = std::string(module.parent());
  }
  std::vector<std::string> missing;
  for (const auto& [family, layers] : blocks) {
    std::map<Leaves, size_t> counts;
    for (const auto& [layer, leaves] : layers) ++counts[leaves];
    const auto usual = std::max_element(counts.begin(), counts.end(),
                                        [](auto& a, auto& b) { return a.second < b.second; });
    if (3 * (layers.size() - usual->second) > layers.size()) continue;
    for (const auto& [layer, leaves] : layers) {
      if (!std::includes(usual->first.begin(), usual->first.end(), leaves.begin(), leaves.end()))
        continue;
      for (const std::string& leaf : usual->first) {
        if (!leaves.contains(leaf))
          missing.push_back(absl::StrCat(parents[{family, layer}], ".", leaf));
      }
    }
  }
  if (missing.empty()) return;
  std::string says = absl::StrCat(Listed(missing), missing.size() == 1 ? " has" : " have",
                                  " no factors, though the other layers' blocks have them");
  findings.push_back({AdapterFault::kMissingKey, std::move(missing), std::move(says)});
}

std::string Shape(const Factor& factor) {
  return absl::StrCat("[", absl::StrJoin(factor.info.shape, ", "), "]");
}

int64_t RankOfB(const Factor& factor) {
  return factor.info.shape.size() < 2 ? -1 : factor.info.shape[1];
}

}  // namespace

void CheckKeys(const Adapter& adapter, AdapterFindings& findings) {
  CheckPairs(adapter, findings);
  CheckTargets(adapter, findings);
  CheckOthers(adapter, findings);
  CheckBlocks(adapter, findings);
}

void CheckShapes(const Adapter& adapter, AdapterFindings& findings) {
  std::map<std::pair<int64_t, int64_t>, std::vector<std::string>> wrong_rank;
  for (const AdapterModule& module : adapter.modules) {
    const auto &a = module.lora_A, &b = module.lora_B;
    for (const auto* factor : {&a, &b}) {
      if (*factor && (*factor)->info.shape.size() < 2) {
        findings.push_back({AdapterFault::kShapeMismatch,
                            {(*factor)->tensor},
                            absl::StrCat((*factor)->tensor, " is ", Shape(**factor),
                                         ", expected a matrix: lora_A [r, in], lora_B [out, r]")});
      }
    }
    if (a && b && RankOfB(*b) >= 0 && a->info.shape.size() >= 2 && a->rows() != RankOfB(*b)) {
      findings.push_back(
          {AdapterFault::kShapeMismatch,
           {module.path},
           absl::StrCat(module.path, ": lora_A is ", Shape(*a), " and lora_B ", Shape(*b),
                        "; lora_A's rows and lora_B's columns are both the rank")});
      continue;
    }
    const auto expected = RankOf(adapter.config, module.path);
    const int64_t rank = a ? a->rows() : b ? RankOfB(*b) : -1;
    if (expected && rank >= 0 && rank != *expected)
      wrong_rank[{*expected, rank}].push_back(module.path);
  }
  for (auto& [ranks, modules] : wrong_rank) {
    const bool all = modules.size() == adapter.modules.size();
    std::string says = absl::StrCat(
        "the rank is ", ranks.first, " in adapter_config.json and ", ranks.second,
        " in the tensors of ", all ? "all " : "", modules.size() == 1 ? modules[0] : "",
        modules.size() == 1 ? "" : absl::StrCat(modules.size(), " modules"),
        modules.size() == 1 || all ? "" : absl::StrCat(" (", Listed(modules), ")"),
        ": PEFT refuses to load them, and the scaling would be another");
    findings.push_back({AdapterFault::kShapeMismatch, std::move(modules), std::move(says)});
  }
}

void CheckDtypes(const Adapter& adapter, AdapterFindings& findings) {
  std::map<std::string_view, std::vector<std::string>> by_dtype;
  for (const AdapterModule& module : adapter.modules) {
    for (const auto* factor : {&module.lora_A, &module.lora_B}) {
      if (*factor) by_dtype[Name((*factor)->info.dtype)].push_back((*factor)->tensor);
    }
  }
  size_t most = 0;
  for (const auto& [dtype, tensors] : by_dtype) most = std::max(most, tensors.size());
  bool usual_seen = false;
  for (auto& [dtype, tensors] : by_dtype) {
    const bool floating = dtype.find("float") != std::string_view::npos;
    const bool usual = tensors.size() == most && !usual_seen;
    usual_seen = usual_seen || usual;
    if (usual && floating) continue;
    std::string says =
        absl::StrCat(Listed(tensors), tensors.size() == 1 ? " is " : " are ", ToAbsl(dtype),
                     floating ? ", the other factors are not" : ", expected a floating type");
    findings.push_back({AdapterFault::kMixedDtype, std::move(tensors), std::move(says)});
  }
}

void CheckPatterns(const Adapter& adapter, AdapterFindings& findings) {
  const auto check = [&](const char* pattern, const std::string& key) {
    const bool found = std::any_of(adapter.modules.begin(), adapter.modules.end(),
                                   [&](const auto& m) { return NamesModule(key, m.path); });
    if (found || !IsPlainName(key)) return;
    findings.push_back(
        {AdapterFault::kBadPattern,
         {key},
         absl::StrCat(pattern, " names '", key, "', which no adapted module ends in")});
  };
  for (const auto& [key, rank] : adapter.config.rank_pattern) check("rank_pattern", key);
  for (const auto& [key, alpha] : adapter.config.alpha_pattern) {
    check("alpha_pattern", key);
    if (!(alpha > 0)) {
      findings.push_back({AdapterFault::kBadPattern,
                          {key},
                          absl::StrCat("alpha_pattern gives '", key, "' ", alpha,
                                       ": a scaling of 0 or less turns the adapter off or round")});
    }
  }
}

}  // namespace sumonce::inspect

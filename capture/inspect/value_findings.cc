// Findings from the factors' values.
#include <algorithm>
#include <cmath>
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

// Linears whose input tensor parallelism cuts, by the names of Hugging Face's and Megatron's
// models.
constexpr std::string_view kRowTargets[] = {
    "o_proj",        "down_proj", "out_proj", "linear_proj", "linear_fc2",
    "dense_4h_to_h", "c_proj",    "wo",       "w2",          "fc2"};
// Sub-projections of one fused matrix in Megatron: linear_qkv, linear_fc1, in_proj (fused or not).
const std::vector<std::vector<std::string_view>>& FusedGroups() {
  static const auto& groups = *new std::vector<std::vector<std::string_view>>{
      {"q_proj", "k_proj", "v_proj"},
      {"gate_proj", "up_proj"},
      {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"},
      {"in_proj_qkvz", "in_proj_ba"}};
  return groups;
}

bool IsRowTarget(std::string_view leaf) {
  return std::find(std::begin(kRowTargets), std::end(kRowTargets), leaf) != std::end(kRowTargets);
}

// What lora_A's values say of whether it moved: its default initialization ends at 1/sqrt(in).
std::string Moved(const Adapter& adapter, const Facts& facts, const std::vector<size_t>& modules) {
  size_t beyond = 0;
  std::string example;
  for (const size_t i : modules) {
    const AdapterModule& module = adapter.modules[i];
    if (!module.lora_A || !facts[i].lora_A || module.lora_A->info.shape.size() < 2) continue;
    const double bound = 1 / std::sqrt(static_cast<double>(module.lora_A->info.shape[1]));
    const double largest = facts[i].lora_A->max_abs;
    if (largest <= bound * 1.001) continue;
    if (beyond++ == 0)
      example = absl::StrCat(" (up to ", Figure(largest),
                             ", PEFT's default initialization ends at ", Figure(bound), ")");
  }
  if (beyond == 0) return "whether their lora_A moved the values do not show";
  return absl::StrCat("their lora_A moved or was initialized otherwise", example);
}

std::vector<std::string> TensorsOfB(const Adapter& adapter, const std::vector<size_t>& modules) {
  std::vector<std::string> names;
  for (const size_t i : modules) names.push_back(adapter.modules[i].path + ".lora_B");
  return names;
}

// Zero lora_Bs: those that the lora-replica fault leaves, and others.
struct Zeros {
  std::vector<size_t> last_row, others;
};

// Where the whole last layer is zero, it was frozen or never used: no sign of a row target's fault.
bool OthersOfLastLayerTrained(const Adapter& adapter, const Facts& facts) {
  bool any = false, trained = false;
  for (size_t i = 0; i < facts.size(); ++i) {
    const AdapterModule& module = adapter.modules[i];
    if (module.layer != adapter.last_layer() || IsRowTarget(module.leaf()) || !facts[i].lora_B)
      continue;
    any = true;
    trained = trained || !facts[i].lora_B->zero();
  }
  return trained || !any;
}

// Routed experts are on one rank each: a zero there is an expert without tokens.
bool IsExpert(const AdapterModule& module) {
  return module.path.find(".experts.") != std::string::npos;
}

Zeros FindZeros(const Adapter& adapter, const Facts& facts) {
  Zeros zeros;
  const bool others_trained = OthersOfLastLayerTrained(adapter, facts);
  for (size_t i = 0; i < facts.size(); ++i) {
    if (!facts[i].lora_B || !facts[i].lora_B->zero()) continue;
    const AdapterModule& module = adapter.modules[i];
    const bool last_row = module.in_layer() && module.layer == adapter.last_layer() &&
                          IsRowTarget(module.leaf()) && !IsExpert(module) && others_trained;
    (last_row ? zeros.last_row : zeros.others).push_back(i);
  }
  return zeros;
}

bool SameTargetTrained(const Adapter& adapter, const Facts& facts, size_t zero) {
  for (size_t i = 0; i < facts.size(); ++i) {
    if (adapter.modules[i].family == adapter.modules[zero].family && facts[i].lora_B &&
        !facts[i].lora_B->zero())
      return true;
  }
  return adapter.layers() == 1;  // no other layer could show it
}

void CheckZeroA(const Adapter& adapter, const Facts& facts, AdapterFindings& findings) {
  std::vector<std::string> zero;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].lora_A && facts[i].lora_A->zero())
      zero.push_back(adapter.modules[i].path + ".lora_A");
  }
  if (zero.empty()) return;
  std::string says = absl::StrCat(
      Listed(zero), zero.size() == 1 ? " is" : " are",
      " exactly zero: the module's update is zero, and lora_B gets no gradient through it");
  findings.push_back({AdapterFault::kZeroFactor, std::move(zero), std::move(says)});
}

struct Named {
  size_t module;
  bool is_A;
};

std::string TensorName(const Adapter& adapter, const Named& factor) {
  return absl::StrCat(adapter.modules[factor.module].path, factor.is_A ? ".lora_A" : ".lora_B");
}

// Sub-projections of one fused matrix, in one layer: their lora_A may be one tensor.
bool MayShare(const Adapter& adapter, const std::vector<Named>& equal) {
  const AdapterModule& first = adapter.modules[equal[0].module];
  const std::vector<std::string_view> fused = FusedWith(first.leaf());
  return std::all_of(equal.begin(), equal.end(), [&](const Named& factor) {
    const AdapterModule& module = adapter.modules[factor.module];
    return factor.is_A && module.parent() == first.parent() &&
           std::find(fused.begin(), fused.end(), module.leaf()) != fused.end();
  });
}

// lora_A digests of the sub-projections of one fused matrix in one layer.
using Shared = std::map<std::string, std::vector<size_t>>;  // digest -> modules
std::map<std::pair<std::string, std::string_view>, Shared> FusedFactors(const Adapter& adapter,
                                                                        const Facts& facts) {
  std::map<std::pair<std::string, std::string_view>, Shared> groups;
  for (size_t i = 0; i < facts.size(); ++i) {
    const AdapterModule& module = adapter.modules[i];
    const std::vector<std::string_view> fused = FusedWith(module.leaf());
    if (fused.empty() || !facts[i].lora_A) continue;
    groups[{std::string(module.parent()), fused[0]}][facts[i].lora_A->digest].push_back(i);
  }
  return groups;
}

size_t CountOf(const Shared& shared) {
  size_t count = 0;
  for (const auto& [digest, modules] : shared) count += modules.size();
  return count;
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

std::vector<std::string_view> FusedWith(std::string_view leaf) {
  for (const auto& group : FusedGroups()) {
    if (std::find(group.begin(), group.end(), leaf) != group.end()) return group;
  }
  return {};
}

bool Untrained(const Facts& facts) {
  bool any = false;
  for (const ModuleFacts& module : facts) {
    if (!module.lora_B) continue;
    any = true;
    if (!module.lora_B->zero()) return false;
  }
  return any;
}

void CheckFinite(const Adapter& adapter, const Facts& facts, AdapterFindings& findings) {
  const auto check = [&](const std::optional<FactorFacts>& factor, const std::string& tensor) {
    if (!factor || factor->not_finite == 0) return;
    findings.push_back(
        {AdapterFault::kNotFinite,
         {tensor},
         absl::StrCat(tensor, " holds ",
                      std::isnan(factor->first_value) ? "NaN"
                      : factor->first_value > 0       ? "inf"
                                                      : "-inf",
                      " at [", absl::StrJoin(factor->first_not_finite, ", "), "]",
                      factor->not_finite == 1 ? ""
                                              : absl::StrCat(", the first of ", factor->not_finite,
                                                             " entries that are not finite"))});
  };
  for (size_t i = 0; i < facts.size(); ++i) {
    check(facts[i].lora_A, adapter.modules[i].path + ".lora_A");
    check(facts[i].lora_B, adapter.modules[i].path + ".lora_B");
  }
}

void CheckZeros(const Adapter& adapter, const Facts& facts, AdapterFindings& findings) {
  CheckZeroA(adapter, facts, findings);
  if (Untrained(facts)) return;
  Zeros zeros = FindZeros(adapter, facts);
  std::vector<size_t> replica;
  for (const size_t i : zeros.last_row)
    (SameTargetTrained(adapter, facts, i) ? replica : zeros.others).push_back(i);
  if (!replica.empty()) {
    std::vector<std::string> tensors = TensorsOfB(adapter, replica);
    std::string says = absl::StrCat(
        Listed(tensors), tensors.size() == 1 ? " is" : " are", " exactly zero, in other layers ",
        tensors.size() == 1 ? "it is" : "they are", " not; ", Moved(adapter, facts, replica),
        ". A row-parallel target of the last layer: what is left when nobody sums the replicated "
        "factor's gradient over tp and the exported rank's tokens are all masked");
    findings.push_back({AdapterFault::kLoraReplica, std::move(tensors), std::move(says)});
  }
  if (!zeros.others.empty()) {
    std::sort(zeros.others.begin(), zeros.others.end());
    std::vector<std::string> tensors = TensorsOfB(adapter, zeros.others);
    std::string says = absl::StrCat(
        Listed(tensors), tensors.size() == 1 ? " is" : " are", " exactly zero, other modules' ",
        "lora_B are not; ", Moved(adapter, facts, zeros.others), ". No gradient reached ",
        tensors.size() == 1 ? "it" : "them", ": frozen, never used in the forward pass, or lost");
    findings.push_back({AdapterFault::kZeroFactor, std::move(tensors), std::move(says)});
  }
}

void CheckEqual(const Adapter& adapter, const Facts& facts, AdapterFindings& findings) {
  constexpr int64_t kLeast = 8;  // elements; fewer may agree by chance
  std::map<std::string, std::vector<Named>> equal;
  const auto note = [&](size_t i, bool is_A, const std::optional<FactorFacts>& factor,
                        const std::optional<Factor>& tensor) {
    if (factor && !factor->zero() && tensor->info.count() >= kLeast)
      equal[factor->digest].push_back({i, is_A});
  };
  for (size_t i = 0; i < facts.size(); ++i) {
    note(i, true, facts[i].lora_A, adapter.modules[i].lora_A);
    note(i, false, facts[i].lora_B, adapter.modules[i].lora_B);
  }
  for (const auto& [digest, factors] : equal) {
    if (factors.size() < 2 || MayShare(adapter, factors)) continue;
    std::vector<std::string> tensors;
    for (const Named& factor : factors) tensors.push_back(TensorName(adapter, factor));
    std::string says =
        absl::StrCat(Listed(tensors), " are bitwise equal: one was written in the others' places");
    findings.push_back({AdapterFault::kEqualFactors, std::move(tensors), std::move(says)});
  }
}

void CheckShared(const Adapter& adapter, const Facts& facts, AdapterFindings& findings) {
  const auto groups = FusedFactors(adapter, facts);
  std::map<std::string_view, std::pair<size_t, size_t>> counts;  // sharing layers, all layers
  for (const auto& [key, shared] : groups) {
    if (CountOf(shared) < 2) continue;
    ++counts[key.second].second;
    counts[key.second].first += shared.size() == 1;
  }
  for (const auto& [key, shared] : groups) {
    if (CountOf(shared) < 2 || shared.size() == 1) continue;
    const auto [sharing, all] = counts[key.second];
    const bool some_equal = CountOf(shared) > shared.size();
    const bool others_share = sharing >= 2 && 2 * sharing > all;
    if (!some_equal && !others_share) continue;
    std::vector<std::string> tensors;
    for (const auto& [digest, modules] : shared) {
      for (const size_t i : modules) tensors.push_back(adapter.modules[i].path + ".lora_A");
    }
    std::sort(tensors.begin(), tensors.end());
    std::string says = absl::StrCat(
        Listed(tensors), " differ, ",
        others_share ? absl::StrCat("in ", sharing, " other layers they are one tensor")
                     : "though some of them are equal",
        ": parts of one fused projection share its lora_A, and Megatron cannot load them apart");
    findings.push_back({AdapterFault::kUnsharedFactors, std::move(tensors), std::move(says)});
  }
}

bool ExportedFused(const Adapter& adapter, const Facts& facts) {
  size_t sharing = 0, all = 0;
  for (const auto& [key, shared] : FusedFactors(adapter, facts)) {
    if (CountOf(shared) < 2) continue;
    ++all;
    sharing += shared.size() == 1;
  }
  return sharing > 0 && 2 * sharing > all;
}

// Far means: more than 10 times, and more than 6 of the layers' own deviations (the median absolute
// one, in logarithms) from the layers' median.
void CheckNorms(const Adapter& adapter, const Facts& facts, AdapterFindings& findings) {
  constexpr double kTimes = 10, kDeviations = 6, kNormalMad = 1.4826;
  std::map<std::string, std::vector<std::pair<size_t, double>>> families;
  for (size_t i = 0; i < facts.size(); ++i) {
    const AdapterModule& module = adapter.modules[i];
    const auto scaling = ScalingOf(adapter.config, module);
    if (!module.in_layer() || !facts[i].update_norm) continue;
    const double norm = *facts[i].update_norm * std::fabs(scaling.value_or(1));
    if (norm > 0) families[module.family].push_back({i, std::log(norm)});
  }
  for (const auto& [family, norms] : families) {
    if (static_cast<int>(norms.size()) < kLeastLayersForNorms) continue;
    std::vector<double> logs, distances;
    for (const auto& [i, norm] : norms) logs.push_back(norm);
    const double median = MedianOf(logs);
    for (const double norm : logs) distances.push_back(std::fabs(norm - median));
    const double allowed =
        std::max(std::log(kTimes), kDeviations * kNormalMad * MedianOf(distances));
    for (const auto& [i, norm] : norms) {
      if (std::fabs(norm - median) <= allowed) continue;
      findings.push_back(
          {AdapterFault::kNormOutlier,
           {adapter.modules[i].path},
           absl::StrCat(adapter.modules[i].path, ": the update's norm is ", Figure(std::exp(norm)),
                        ", the median of the same target in ", norms.size(), " layers is ",
                        Figure(std::exp(median)))});
    }
  }
}

}  // namespace sumonce::inspect

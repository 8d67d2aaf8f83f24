#include "capture/inspect/inspect.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "capture/inspect/wording.h"

namespace sumonce::inspect {
namespace {

std::string Counted(size_t count, const char* one) {
  return absl::StrCat(count, " ", one, count == 1 ? "" : "s");
}

// "r 8, scaling 2 (lora_alpha / r)", or the ranges where patterns make them differ.
std::string ScalingText(const Adapter& adapter) {
  std::set<int64_t> ranks;
  std::set<double> scalings;
  for (const AdapterModule& module : adapter.modules) {
    if (module.lora_A) ranks.insert(module.lora_A->rows());
    if (const auto scaling = ScalingOf(adapter.config, module)) scalings.insert(*scaling);
  }
  if (ranks.empty()) return "no lora_A";
  std::string text = absl::StrCat("r ", *ranks.begin());
  if (ranks.size() > 1) absl::StrAppend(&text, " to ", *ranks.rbegin());
  if (scalings.empty()) return text;
  absl::StrAppend(&text, ", scaling ", Figure(*scalings.begin()));
  if (scalings.size() > 1) absl::StrAppend(&text, " to ", Figure(*scalings.rbegin()));
  return absl::StrCat(
      text, adapter.config.use_rslora ? " (lora_alpha / sqrt(r), rsLoRA)" : " (lora_alpha / r)");
}

std::string About(const Adapter& adapter) {
  size_t factors = 0;
  for (const AdapterModule& module : adapter.modules)
    factors += module.lora_A.has_value() + module.lora_B.has_value();
  return absl::StrCat(Counted(factors, "factor"), " of ", Counted(adapter.modules.size(), "module"),
                      " in ", Counted(adapter.layers(), "layer"), ", ", ScalingText(adapter));
}

bool NormsComparable(const Adapter& adapter, const Facts& facts) {
  std::map<std::string, int> layers;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].update_norm && adapter.modules[i].in_layer() &&
        ++layers[adapter.modules[i].family] >= kLeastLayersForNorms)
      return true;
  }
  return false;
}

// rsLoRA and lora_alpha / r part by sqrt(r): a configuration that says one and means the other.
void AddScaling(const Adapter& adapter, std::vector<std::string>& statements) {
  for (const auto& [key, rank] : adapter.config.rank_pattern) {
    if (adapter.config.alpha_pattern.contains(key)) continue;
    statements.push_back(
        absl::StrCat("rank_pattern gives '", key, "' the rank ", rank, " and alpha_pattern no ",
                     "lora_alpha of its own: its scaling differs from the other modules'"));
    break;
  }
}

std::vector<std::string> Statements(const Adapter& adapter, const Facts& facts) {
  std::vector<std::string> statements;
  if (adapter.modules.empty()) return statements;
  if (Untrained(facts)) {
    statements.push_back(
        "every lora_B is zero: the adapter was not trained, or saved before its first step; there "
        "is nothing to see of its training");
    return statements;
  }
  if (ExportedFused(adapter, facts)) {
    statements.push_back(
        "parts of one fused projection share their lora_A: exported from Megatron's fused modules");
  }
  AddScaling(adapter, statements);
  statements.push_back(
      adapter.layers() == 0
          ? "no names with layer numbers: zeros and norms cannot be compared over layers"
      : NormsComparable(adapter, facts)
          ? "norms were compared over the layers, each target with itself"
          : absl::StrCat("fewer than ", kLeastLayersForNorms,
                         " layers of each target: norms cannot be compared"));
  statements.push_back(
      "not to be seen here: whether the copies of a factor were equal on all ranks (the file holds "
      "one), and a gradient that was scaled or summed twice (an optimizer hides it); sumonce lint "
      "and sumonce audit look at the job itself");
  return statements;
}

}  // namespace

absl::StatusOr<AdapterReport> InspectAdapter(const std::string& dir) {
  SUMONCE_ASSIGN_OR_RETURN(const Adapter adapter, ReadAdapter(dir));
  SUMONCE_ASSIGN_OR_RETURN(const Facts facts, ReadFacts(adapter));
  AdapterReport report{.dir = dir, .about = About(adapter), .findings = {}, .statements = {}};
  if (adapter.modules.empty()) {
    report.findings.push_back(
        {AdapterFault::kMissingKey, {}, "the file holds no factor of LoRA at all"});
  }
  for (auto* check : {CheckKeys, CheckShapes, CheckDtypes, CheckPatterns})
    check(adapter, report.findings);
  for (auto* check : {CheckFinite, CheckZeros, CheckEqual, CheckShared, CheckNorms})
    check(adapter, facts, report.findings);
  report.statements = Statements(adapter, facts);
  return report;
}

ScenarioResult ToResult(const AdapterReport& report) {
  ScenarioResult result;
  result.name = report.dir;
  result.file = absl::StrCat(report.dir, "/adapter_model.safetensors");
  result.about = report.about;
  result.statements = report.statements;
  for (const AdapterFinding& finding : report.findings)
    result.failures.push_back(absl::StrCat(ToAbsl(Name(finding.fault)), ": ", finding.says));
  if (!result.failures.empty()) result.outcome = RunOutcome::kFail;
  return result;
}

}  // namespace sumonce::inspect

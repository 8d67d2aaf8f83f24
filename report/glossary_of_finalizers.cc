#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "report/glossary.h"
#include "sim/finalize/finalizer.h"

namespace sumonce {
namespace {

std::string ShownBy(const std::string& rule) {
  static const auto& shown = *new std::map<std::string, std::string>{
      {"data_parallel_mean", "dp/mean_of_cells"},
      {"data_parallel_sum", "dp/sum_dropped"},
      {"expert_data_parallel_mean", "moe/expert_group_mean"},
      {"expert_data_parallel_sum", "moe/expert_group_replica"},
      {"average_over_tp", "lora/averaged_complete"},
      {"sequence_parallel_sum", "lora/row_flag_missing"},
      {"qk_layernorm_sum", "norm/qk_layernorm"},
      {"times_inverse_num_tokens", "dp/tokens_not_divided"},
  };
  const auto found = shown.find(rule);
  return found == shown.end() ? "" : found->second;
}

// What mends a parameter that the rule does not treat as its class needs.
std::string CureOf(const FinalizeRule& rule) {
  if (rule.times_inverse_tokens) return "once a step, behind all sums";
  if (rule.group == "tp") {
    return rule.map == Map::kAvg
               ? "for copies of a complete gradient: clear the mark where ranks hold terms"
               : "for terms: mark what needs it, clear the mark on complete gradients and shards";
  }
  return rule.group == "edp"
             ? "for experts: set allreduce on every other parameter"
             : "for every parameter that ranks of dp hold alike: once, over all of dp";
}

std::string FormulaOf(const FinalizeRule& rule) {
  if (rule.times_inverse_tokens) return "f = g / num_tokens";
  const std::string sum = absl::StrCat("sum over ", rule.group, " of g");
  const std::string divisor = rule.map == Map::kAvg ? rule.group : rule.divided_by;
  if (!divisor.empty()) return absl::StrCat("f = (", sum, ") / ", divisor);
  return absl::StrCat("f = ", sum);
}

}  // namespace

std::vector<GlossaryEntry> GlossaryOfFinalizers() {
  std::vector<GlossaryEntry> entries;
  std::map<std::string, GlossaryEntry> rules;
  std::map<std::string, std::vector<std::string>> presets_by_claim;  // "<rule>: <what it claims>"
  for (const std::string& name : Finalizers().names()) {
    const FinalizePreset preset = *Finalizers().Find(name);
    GlossaryEntry entry{.kind = "preset",
                        .word = name,
                        .says =
                            "what finalize_model_grads of this version does, in order; inside a "
                            "step the first rule that claims a parameter wins"};
    for (const FinalizeStep& step : preset.steps) {
      entry.details.push_back(absl::StrCat("step ", step.name));
      for (const FinalizeRule& rule : step.rules) {
        entry.details.push_back(absl::StrCat("  ", rule.name, "  ", rule.says));
        rules[rule.name] = {.kind = "rule",
                            .word = rule.name,
                            .says = rule.says,
                            .formula = FormulaOf(rule),
                            .cure = CureOf(rule),
                            .shown_by = ShownBy(rule.name)};
        presets_by_claim[absl::StrCat(rule.name, "\n", rule.says)].push_back(name);
      }
    }
    entries.push_back(std::move(entry));
  }
  for (const auto& [claim, presets] : presets_by_claim) {
    const size_t line = claim.find('\n');
    rules[claim.substr(0, line)].details.push_back(
        absl::StrCat(claim.substr(line + 1), "  in ", absl::StrJoin(presets, ", ")));
  }
  for (auto& [name, rule] : rules) entries.push_back(std::move(rule));
  return entries;
}

}  // namespace sumonce

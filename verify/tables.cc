#include "verify/tables.h"

#include "absl/strings/str_cat.h"
#include "sim/simulator.h"
#include "verify/tolerance.h"

namespace sumonce {

std::vector<RankTable> RankTables(const Scenario& scenario, const RunRecord& record) {
  const LoraConfig& lora = scenario.model.common.lora;
  if (!lora.enabled || !lora.zero_init_B || scenario.steps < 2 || scenario.mesh.tp < 2) return {};
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  RankTable table;
  table.title = absl::StrCat("greatest |entry| of each replicated lora_B after step ",
                             scenario.steps, ", tp ranks of dp rank 0");
  const std::vector<int> ranks = mesh.Ranks(mesh.GroupOf(Axis::kTp), 0);
  for (size_t i = 0; i < ranks.size(); ++i) table.columns.push_back(absl::StrCat("rank ", i));
  Model model(EffectiveModel(scenario));
  for (const Param& param : model.params().all()) {
    if (!param.replicated_lora || !param.name.ends_with("lora_B")) continue;
    RankTable::Row row{.name = param.name, .values = {}};
    for (int rank : ranks) {
      if (record.ranks.size() <= static_cast<size_t>(rank) || record.ranks[rank].empty()) return {};
      row.values.push_back(MaxAbs(record.ranks[rank].back().params.at(param.name).weight_after));
    }
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty()) return {};
  return {table};
}

}  // namespace sumonce

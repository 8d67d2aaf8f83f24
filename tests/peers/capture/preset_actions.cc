// What a preset does to each parameter of a real model: the rules of sim/finalize that claim it,
// for finalizers.py, which compares them with the framework's own finalizer.
//
// One JSON object a line, in and out:
//   {"preset": "megatron_core_0_16", "config": {"sequence_parallel": true, "qk_layernorm": false,
//    "calculate_per_token_loss": false}, "params": {"a.weight": {"marks": {"allreduce": true}}}}
//   {"a.weight": [{"step": "data_parallel", "rule": "data_parallel_mean", "group": "dp", "map":
//   "sum",
//    "divided_by": "dp", "times_inverse_tokens": false}]}
#include <iostream>
#include <string>

#include "nlohmann/json.hpp"
#include "sim/finalize/finalizer.h"

namespace {

using nlohmann::json;

sumonce::Param ParamOf(const std::string& name, const json& described) {
  const json marks = described.value("marks", json::object());
  sumonce::Param param;
  param.name = name;
  param.marks.sequence_parallel = marks.value("sequence_parallel", false);
  param.marks.average_gradients_across_tp_domain =
      marks.value("average_gradients_across_tp_domain", false);
  param.marks.tensor_model_parallel = marks.value("tensor_model_parallel", false);
  param.marks.partition_dim = marks.value("partition_dim", -1);
  param.marks.allreduce = marks.value("allreduce", true);
  param.marks.shared = marks.value("shared", false);
  return param;
}

json ActionsOf(const sumonce::FinalizePreset& preset, const sumonce::FinalizeConfig& config,
               const sumonce::Param& param) {
  json actions = json::array();
  for (const sumonce::FinalizeStep& step : preset.steps) {
    const sumonce::FinalizeRule* rule = sumonce::Claiming(step, param, config);
    if (rule == nullptr) continue;
    actions.push_back({{"step", step.name},
                       {"rule", rule->name},
                       {"group", rule->group},
                       {"map", rule->map == sumonce::Map::kAvg ? "avg" : "sum"},
                       {"divided_by", rule->divided_by},
                       {"times_inverse_tokens", rule->times_inverse_tokens}});
  }
  return actions;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const json request = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!request.is_object()) {
      std::cerr << "preset_actions: not a JSON object: " << line.substr(0, 80) << '\n';
      return 4;
    }
    const auto preset = sumonce::Finalizers().Find(request.value("preset", ""));
    if (!preset.ok()) {
      std::cerr << "preset_actions: " << preset.status().message() << '\n';
      return 4;
    }
    const json switches = request.value("config", json::object());
    const sumonce::FinalizeConfig config{
        .sequence_parallel = switches.value("sequence_parallel", false),
        .qk_layernorm = switches.value("qk_layernorm", false),
        .per_token_loss = switches.value("calculate_per_token_loss", false)};
    json actions = json::object();
    const json params = request.value("params", json::object());
    for (const auto& [name, described] : params.items())
      actions[name] = ActionsOf(*preset, config, ParamOf(name, described));
    std::cout << actions.dump() << std::endl;
  }
  return 0;
}

#include "cli/cost_flags.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cost/measured_model.h"

namespace sumonce {
namespace {

constexpr int kMostCalibratedRanks = 16;  // threads of this process

}  // namespace

void AddCost(CLI::App& app, CostFlags& flags) {
  app.add_flag("--cost", flags.asked, "Say what each cure adds to a step: calls, bytes, time");
  app.add_option_function<std::string>(
         "--cost-model",
         [&flags](const std::string& path) {
           flags.asked = true;
           flags.model_file = path;
         },
         "By the model in this file (bench --model-out) instead of a calibration")
      ->type_name("FILE");
  app.add_option("--cost-ranks", flags.ranks, "As if the group had so many ranks")
      ->check(CLI::Range(2, 1 << 20))
      ->type_name("N");
  AddNodes(app, flags.nodes);
  // Each of these asks for the cost: a flag that does nothing would hide that it was not printed.
  app.parse_complete_callback([&app, &flags] {
    for (const char* name :
         {"--cost-ranks", "--node-ranks", "--link-latency-us", "--link-bandwidth"})
      flags.asked |= app.count(name) > 0;
  });
}

absl::StatusOr<std::unique_ptr<CureCosts>> CureCosts::Create(const CostFlags& flags) {
  if (flags.ranks > 0) SUMONCE_RETURN_IF_ERROR(flags.nodes.CheckFilledBy(flags.ranks));
  std::unique_ptr<CureCosts> costs(new CureCosts(flags));
  if (flags.model_file.empty()) return costs;
  std::ifstream file(flags.model_file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof())
    return absl::NotFoundError(absl::StrCat(flags.model_file, ": cannot be read"));
  absl::StatusOr<CostModel> model = CostModelFromJson(text);
  if (!model.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.model_file, ": ", model.status().message()));
  }
  costs->models_[0] = *std::move(model);
  costs->basis_ = flags.model_file;
  return costs;
}

absl::StatusOr<const CostModel*> CureCosts::ModelFor(int ranks) {
  if (!flags_.model_file.empty()) return &models_[0];
  ranks = std::clamp(ranks, 2, kMostCalibratedRanks);
  if (!models_.contains(ranks)) {
    const TransportFlags threads{.executor = {.kind = ExecutorKind::kThreads}};
    SUMONCE_ASSIGN_OR_RETURN(
        models_[ranks], Calibrate(**Transports().Find(threads.name), threads.Options(), ranks));
  }
  return &models_[ranks];
}

absl::Status CureCosts::AddTo(const Scenario& scenario, std::vector<ScenarioResult>& results) {
  SUMONCE_ASSIGN_OR_RETURN(const CostModel* measured, ModelFor(scenario.mesh.tp));
  const int ranks = flags_.ranks > 0 ? flags_.ranks : scenario.mesh.tp;
  SUMONCE_RETURN_IF_ERROR(flags_.nodes.CheckFilledBy(ranks));
  const CostModel model = flags_.nodes.Over(*measured);
  for (Finding& finding : results.front().findings) {
    if (!finding.cure) continue;
    std::vector<Edit> cured = scenario.defects;
    cured.insert(cured.end(), finding.cure->edits.begin(), finding.cure->edits.end());
    CureCost cost = CostOfCure(scenario, scenario.defects, cured, model, flags_.ranks);
    cost.basis = absl::StrCat(basis_.empty() ? "in_process threads" : basis_, ", ", ranks, " ranks",
                              flags_.nodes.Describe());
    finding.cure->cost = std::move(cost);
  }
  return absl::OkStatus();
}

}  // namespace sumonce

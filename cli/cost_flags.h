// run --cost: what each proposed cure costs, by a model of a transport.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cli/transport_flags.h"
#include "cost/cost_model.h"
#include "verify/verdict.h"

namespace sumonce {

struct CostFlags {
  bool asked = false;
  std::string model_file;  // empty: calibrated on threads of this process
  int ranks = 0;           // as if the groups had so many; 0: as they are
  NodeFlags nodes;
};
// --cost, --cost-model, --cost-ranks, and those of AddNodes.
void AddCost(CLI::App& app, CostFlags& flags);

// Puts the cost beside the cures of results.
class CureCosts {
 public:
  // Reads the model file, if one is named. InvalidArgument, NotFound: with the path.
  static absl::StatusOr<std::unique_ptr<CureCosts>> Create(const CostFlags& flags);

  // `results`: of the scenario as written, then of its cured twin. The status is that of a
  // calibration.
  absl::Status AddTo(const Scenario& scenario, std::vector<ScenarioResult>& results);

 private:
  explicit CureCosts(CostFlags flags) : flags_(std::move(flags)) {}
  absl::StatusOr<const CostModel*> ModelFor(int ranks);

  CostFlags flags_;
  std::map<int, CostModel> models_;  // by the ranks that they were calibrated for; 0: the file's
  std::string basis_;
};

}  // namespace sumonce

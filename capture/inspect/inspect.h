// sumonce inspect: what an exported adapter still shows of how it was trained.
//
// One pass over the file, memory bounded by two factors (factor_facts.h). Hostile input is an
// InvalidArgument that names the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/inspect/findings.h"
#include "verify/verdict.h"

namespace sumonce::inspect {

struct AdapterReport {
  std::string dir;
  std::string about;  // "32 factors of 16 modules in 4 layers, r 8, scaling 2 (lora_alpha / r)"
  AdapterFindings findings;
  std::vector<std::string> statements;  // what can and what cannot be concluded
};

absl::StatusOr<AdapterReport> InspectAdapter(const std::string& dir);

// For the reporters: each finding is a failure, "WORD: sentence".
ScenarioResult ToResult(const AdapterReport& report);

}  // namespace sumonce::inspect

// The smallest scenario with the mesh, layers and marks of a manifest that shows its faults: for a
// bug report, or a regression test.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "capture/lint/statements.h"

namespace sumonce::lint {

// Faults of parameters, by their names in the manifest. Of each kind of parameter and mechanism one
// layer is kept.
using Faults = std::map<std::string, Mechanism>;
// Those that the statements themselves show.
Faults FaultsOf(const Statements& statements);
// NORM_MISCOUNT of every parameter that the norm counts wrongly and that has no other fault.
void AddNormFaults(const Statements& statements, Faults& faults);

// A scenario file that expects these faults. InvalidArgument if there is none, or if one of them is
// not what the model of the manifest shows (a mechanism of the run, of experts, of the data): then
// which. `origin`: where the manifest is, for the file's comment.
absl::StatusOr<std::string> ScenarioText(const Statements& statements, const Faults& faults,
                                         const std::string& origin);

}  // namespace sumonce::lint

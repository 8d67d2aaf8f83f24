// The exported adapter against what was trained: EXPORT_DIFFERS.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sim/record.h"
#include "sim/scenario.h"

namespace sumonce {

struct ExportCheck {
  absl::Status status;  // of writing and reading
  std::map<std::string, std::string>
      differs;  // parameter -> evidence: the exported is not what every rank trained
  std::vector<std::string> notes;  // where it was written; all-zero tensors in it
};

// The folder below `dir` that the adapter of the run `name` is written to.
std::string ExportFolder(const std::string& dir, const std::string& name);

// Exports below `dir` (empty: a temporary that is removed again) as mcore-bridge does, reads the
// files back and compares.
ExportCheck CheckExported(const Scenario& scenario, const RunRecord& record, const std::string& dir,
                          bool overwrite, const std::string& name);

}  // namespace sumonce

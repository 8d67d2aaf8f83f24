// What the verbs that judge files of a user's own job have in common: one path after the other,
// reported as it ends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "cli/verb.h"

namespace sumonce {

struct FileLoop {
  const OutputFlags& output;
  bool proof_only = false;
  // The result of one path, complete but for its time. An error is the user's: it ends the loop.
  std::function<absl::StatusOr<ScenarioResult>(const std::string& path)> judge;
};

// Returns the exit status.
int ReportFiles(const std::vector<std::string>& paths, const FileLoop& loop, Context& context);

// Says on stderr what is wrong with the user's input. Returns kUsage.
int ComplainOf(const absl::Status& status, Context& context);

}  // namespace sumonce

// What `run` and `prove` have in common: one scenario after the other, reported as it ends, until
// done or interrupted.
#pragma once

#include <functional>
#include <vector>

#include "cli/flags.h"
#include "cli/selection.h"
#include "cli/verb.h"

namespace sumonce {

struct ReportLoop {
  const OutputFlags& output;
  bool proof_only = false;
  // The results of one scenario, complete but for nothing.
  std::function<std::vector<ScenarioResult>(const SelectedRun& run)> judge;
  SavedCounts captures = {};  // for the last line
};

// Returns the exit status. A scenario that runs when SIGINT or SIGTERM comes is finished and
// reported.
int ReportAll(const Selection& selection, const ReportLoop& loop, Context& context);

// A word as a POSIX shell reads it back.
std::string ShellQuoted(const std::string& word);

}  // namespace sumonce

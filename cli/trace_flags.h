// prove --trace DIR: the verdicts of recorded steps.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/verb.h"

namespace sumonce {

struct TraceFlags {
  std::vector<std::string> dirs;  // empty: scenarios are proved
  std::string explain;            // a parameter; empty: none
};
void AddTrace(CLI::App& app, TraceFlags& flags);

// Each folder's verdicts through the reporters, or the chain of operations of one parameter.
// Returns the exit status.
int ProveTraceDirs(const TraceFlags& flags, const OutputFlags& output, Context& context);

}  // namespace sumonce

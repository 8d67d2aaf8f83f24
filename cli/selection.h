// From the paths and flags of the command line to the scenarios that are run: found, filtered,
// multiplied by the sizes of
// --tp 2,4,8 and read, with every mistake of every file.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/verb.h"
#include "sim/scenario_reader.h"

namespace sumonce {

struct SelectedRun {
  Scenario scenario;    // named "area/file", or "area/file[tp=8]" where flags set axes
  Overrides overrides;  // what the flags set
};

struct Selection {
  std::vector<SelectedRun> runs;
  std::vector<std::string>
      mistakes;         // formatted, each once; runs are not complete if there are any
  std::string nothing;  // why there is nothing to run; empty if there is
};

Selection Select(const SelectionFlags& flags);

// The files alone, unread: for `list`.
std::vector<ScenarioFile> FindSelected(const SelectionFlags& flags, Selection& selection);

// Prints what stops a verb and gives its exit status: mistakes, or nothing selected; kAsExpected if
// neither.
int Complain(const Selection& selection, Context& context);

// The cartesian product of the sizes; one without any if no axis is set.
std::vector<Overrides> Products(const SelectionFlags& flags);
// "[tp=8,dp=2]"; "" without sizes.
std::string NameSuffix(const Overrides& overrides);

// The flags that make these overrides again: " --tp 8 --seed 3"; each with a leading blank.
std::string OverrideFlags(const Overrides& overrides);

}  // namespace sumonce

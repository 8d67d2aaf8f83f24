// prove CONFIG.json: configs of models and adapters among the paths, as runs.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "cli/selection.h"

namespace sumonce {

struct ConfigFlags {
  std::string adapter;       // adapter_config.json or its folder
  std::string finalizer;     // empty: the default
  std::string scenario_out;  // also write the scenario there; empty: not
  bool no_sequence_parallel = false;
  bool gather_region = false;
};
// --adapter, --finalizer, --no-sequence-parallel, --gather-region, --scenario-out.
void AddConfigs(CLI::App& app, ConfigFlags& flags);

// Takes the paths that are configs (a .json file, a folder with config.json) out of `selection` and
// makes a run of each and of each product of sizes. Without --tp and --dp: 2 and 2. Notes go to
// `talk`.
std::vector<SelectedRun> TakeConfigs(const ConfigFlags& flags, bool force,
                                     SelectionFlags& selection, std::vector<std::string>& mistakes,
                                     std::ostream& talk);

}  // namespace sumonce

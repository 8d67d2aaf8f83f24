// The scenarios that ship, read for a test.
#pragma once

#include <string>
#include <vector>

#include "sim/scenario_reader.h"

namespace sumonce::testing {

// Of scenarios/ in the source tree; a mistake in a shipped file fails the calling test.
std::vector<ScenarioFile> ShippedFiles();
Scenario Shipped(const std::string& name, const Overrides& overrides = {});

}  // namespace sumonce::testing

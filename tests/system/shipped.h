// The scenarios that ship, read for a test.
#pragma once

#include <string>
#include <vector>

#include "sim/scenario_reader.h"

namespace sumonce::testing {

// Of scenarios/ in the source tree; a mistake in a shipped file fails the calling test.
std::vector<ScenarioFile> ShippedFiles();
Scenario Shipped(const std::string& name, const Overrides& overrides = {});

// Whether its run is to end before its gradients are there: a deadlock and the like.
bool EndsEarly(const Scenario& scenario);
// Whether it is expected to give other bits under other schedules.
bool HasNoDigest(const Scenario& scenario);

}  // namespace sumonce::testing

#include "tests/system/shipped.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sumonce::testing {

std::vector<ScenarioFile> ShippedFiles() {
  std::vector<Mistake> mistakes;
  std::vector<ScenarioFile> files =
      FindScenarios({std::string(SUMONCE_SOURCE_DIR) + "/scenarios"}, mistakes);
  EXPECT_TRUE(mistakes.empty());
  EXPECT_FALSE(files.empty());
  return files;
}

Scenario Shipped(const std::string& name, const Overrides& overrides) {
  const ReadResult result = ReadScenario(
      std::string(SUMONCE_SOURCE_DIR) + "/scenarios/" + name + ".textproto", name, overrides);
  for (const Mistake& mistake : result.mistakes) ADD_FAILURE() << Format(mistake);
  return result.scenario;
}

bool EndsEarly(const Scenario& scenario) {
  return std::any_of(scenario.expectations.begin(), scenario.expectations.end(),
                     [](const Expectation& expectation) {
                       return expectation.mechanism >= Mechanism::kCollectiveMismatch &&
                              expectation.mechanism != Mechanism::kNondeterministic &&
                              expectation.param.empty();
                     });
}

bool HasNoDigest(const Scenario& scenario) {
  return std::any_of(scenario.expectations.begin(), scenario.expectations.end(),
                     [](const Expectation& expectation) {
                       return expectation.mechanism == Mechanism::kNondeterministic;
                     });
}

}  // namespace sumonce::testing

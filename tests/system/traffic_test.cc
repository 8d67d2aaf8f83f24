// What cost/traffic.h reads off the structure, against the calls that ranks really make.
#include "cost/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/simulator.h"
#include "tests/system/shipped.h"

namespace sumonce {
namespace {

using Sizes = std::map<std::pair<CallKind, std::string>, std::vector<int64_t>>;

void Sort(Sizes& sizes) {
  for (auto& [call, elements] : sizes) std::sort(elements.begin(), elements.end());
}

Sizes Predicted(const Scenario& scenario, const std::vector<Edit>& edits) {
  Sizes sizes;
  for (const TrafficLine& line : TrafficOf(scenario, edits)) {
    std::vector<int64_t>& all = sizes[{line.call, line.group}];
    all.insert(all.end(), line.elements.begin(), line.elements.end());
  }
  Sort(sizes);
  return sizes;
}

// Of rank 0; counted as the prediction counts. Splits and barriers carry nothing.
Sizes Made(const Scenario& scenario, const std::vector<Edit>& edits) {
  Model model(EffectiveModel(scenario));
  SimOptions options;
  options.now_us = [] { return 0.0; };
  const SimResult result =
      Simulate(scenario, edits, *StartWeights(scenario, model.params()), options);
  EXPECT_TRUE(result.status.ok()) << result.status;
  Sizes sizes;
  if (result.calls.empty()) return sizes;
  const RankCalls& rank = result.calls[0];
  for (const RecordedCall& call : rank.calls) {
    if (call.kind == CallKind::kSplit || call.kind == CallKind::kBarrier) continue;
    const RecordedGroup& group = rank.groups[call.group];
    const auto ranks = static_cast<int64_t>(group.world_ranks.size());
    const bool sliced = call.kind == CallKind::kAllGather || call.kind == CallKind::kReduceScatter;
    const std::string name = group.name.substr(group.name.rfind(' ') + 1);
    sizes[{call.kind, name}].push_back(sliced ? call.count * ranks : call.count);
  }
  Sort(sizes);
  return sizes;
}

// The runs that come to their end without a fault between the ranks.
bool Comparable(const Scenario& scenario) {
  const bool transport = scenario.name.rfind("transport/", 0) == 0;
  return !testing::EndsEarly(scenario) && !transport;
}

// A defect in the model itself can leave a value whose layout nobody knows: its calls are counted,
// their sizes are not claimed.
bool LosesLayouts(const Scenario& scenario, const std::vector<Edit>& edits) {
  return !edits.empty() && std::any_of(scenario.expectations.begin(), scenario.expectations.end(),
                                       [](const Expectation& expectation) {
                                         return expectation.mechanism == Mechanism::kUpstream;
                                       });
}

std::map<std::pair<CallKind, std::string>, size_t> Counts(const Sizes& sizes) {
  std::map<std::pair<CallKind, std::string>, size_t> counts;
  for (const auto& [call, elements] : sizes) counts[call] = elements.size();
  return counts;
}

TEST(Traffic, IsWhatTheRanksOfEveryShippedScenarioSay) {
  int compared = 0;
  int calls = 0;
  for (const ScenarioFile& file : testing::ShippedFiles()) {
    Scenario scenario = testing::Shipped(file.name);
    if (!Comparable(scenario)) continue;
    scenario.steps = 1;
    for (const std::vector<Edit>& edits : {scenario.defects, std::vector<Edit>()}) {
      const Sizes made = Made(scenario, edits);
      const Sizes predicted = Predicted(scenario, edits);
      SCOPED_TRACE(file.name + (edits.empty() ? "" : " with its defects"));
      EXPECT_EQ(Counts(predicted), Counts(made));
      if (!LosesLayouts(scenario, edits)) EXPECT_EQ(predicted, made);
      ++compared;
      for (const auto& [call, sizes] : made) calls += static_cast<int>(sizes.size());
    }
  }
  EXPECT_GT(compared, 80);
  std::cout << compared << " runs, " << calls << " calls of rank 0\n";
}

}  // namespace
}  // namespace sumonce

// Two ways to one class: the types that reading a program forward gives, against the states that
// propagation backward gives, for every trained parameter and axis of every shipped clean run.
#include "verify/forward_types.h"

#include <gtest/gtest.h>

#include <iostream>

#include "tests/system/shipped.h"
#include "verify/prove.h"

namespace sumonce {
namespace {

ForwardType TypeOfLayout(Layout layout) {
  return layout == Layout::kEqual     ? ForwardType::kI
         : layout == Layout::kPartial ? ForwardType::kR
                                      : ForwardType::kV;
}

struct TypeCounts {
  int pairs = 0, shares = 0;
};

// Copies that are reduce-scattered: R, whose terms are equal, which reading forward cannot tell.
bool IsEqualShare(const AxisState& state, ForwardType type, const State& whole) {
  return type == ForwardType::kR && state.layout == Layout::kEqual && !(whole.scale == Scale());
}

void CompareTypes(const ProofRun& run, const std::string& name, TypeCounts& counts) {
  SCOPED_TRACE(name);
  const ForwardTypes types = InferForward(*run.tape, run.loss);
  EXPECT_TRUE(types.conflicts.empty()) << types.conflicts[0];
  for (const Param& param : run.model->params().all()) {
    const auto before = run.before.find(param.name);
    if (before == run.before.end()) continue;
    for (size_t axis = 0; axis < run.mesh->atomic().size(); ++axis) {
      const int atomic = static_cast<int>(axis);
      if (run.mesh->atomic()[axis].size == 1) continue;
      const AxisState& state = before->second[atomic];
      const ForwardType type = types.OfParam(*run.tape, param, atomic);
      ++counts.pairs;
      if (IsEqualShare(state, type, before->second)) {
        ++counts.shares;
        continue;
      }
      EXPECT_EQ(Name(type), Name(TypeOfLayout(state.layout)))
          << param.name << " along " << run.mesh->atomic()[axis].name;
    }
  }
}

std::vector<Edit> EditsOfTheCured(const Scenario& scenario) {
  if (scenario.cures.empty()) return {};
  std::vector<Edit> edits = scenario.defects;
  edits.insert(edits.end(), scenario.cures.begin(), scenario.cures.end());
  return edits;
}

TEST(ForwardTypes, AgreeWithBackwardPropagationOnEveryCleanRun) {
  TypeCounts counts;
  for (const ScenarioFile& file : testing::ShippedFiles()) {
    const Scenario scenario = testing::Shipped(file.name);
    const bool unmended = scenario.defects.empty() && !scenario.expectations.empty();
    if (unmended) continue;  // the model itself is wrong
    const ProofRun run = Prove(scenario, EditsOfTheCured(scenario));
    if (run.refused.empty()) CompareTypes(run, file.name, counts);
  }
  EXPECT_GT(counts.pairs, 500);
  std::cout << counts.pairs << " parameters and axes, " << counts.shares << " equal shares\n";
}

// One weight read on the rank's own tokens and on the gathered sequence: terms of one, the whole of
// the other.
TEST(ForwardTypes, AMixedUseIsUsedAsRAndAsI) {
  const Scenario scenario = testing::Shipped("norm/mixed_use");
  const ProofRun run = Prove(scenario, scenario.defects);
  const ForwardTypes types = InferForward(*run.tape, run.loss);
  int mixed = 0;
  for (const auto& [name, proof] : run.proofs) {
    if (proof.mechanism != Mechanism::kMixedUse) continue;
    for (size_t axis = 0; axis < run.mesh->atomic().size(); ++axis) {
      if (run.mesh->atomic()[axis].size == 1) continue;
      EXPECT_EQ(types.OfParam(*run.tape, *run.model->params().Find(name), static_cast<int>(axis)),
                ForwardType::kConflict)
          << name;
      ++mixed;
    }
  }
  EXPECT_GT(mixed, 0);
}

// Reading forward rejects what a communication gets wrong, and names it.
TEST(ForwardTypes, APairThatIsNoneIsAConflict) {
  const Scenario scenario = testing::Shipped("upstream/gather_split_backward");
  const ProofRun run = Prove(scenario, scenario.defects);
  EXPECT_FALSE(InferForward(*run.tape, run.loss).conflicts.empty());
}

}  // namespace
}  // namespace sumonce

// For every shipped clean scenario: every communication (each direction), every rule and every mark
// is dropped in turn. Each drop must be found (some parameter WRONG or NO_STATEMENT, the proof
// agreeing), or be refused by a shape check that names the operation, or be proved equal.
#include <gtest/gtest.h>

#include <iostream>

#include "base/testing/search_stride.h"
#include "comm/errors.h"
#include "tests/system/shipped.h"
#include "verify/run_once.h"

namespace sumonce {
namespace {

struct Counts {
  int found = 0, refused = 0, equal = 0;
  int total() const { return found + refused + equal; }
};

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.total() << " drops: " << counts.found << " found, " << counts.refused
             << " refused by a shape check, " << counts.equal << " proved equal";
}

std::vector<Edit> CollectiveDrops(const ProofRun& clean) {
  std::vector<Edit> drops;
  for (const Tape::Node& node : clean.tape->nodes()) {
    if (node.kind != Tape::Kind::kCollective || node.collective.backward.map == Map::kStop)
      continue;
    if (clean.mesh->size(node.collective.group) == 1) continue;
    for (Direction direction : {Direction::kForward, Direction::kBackward}) {
      const MapArgs& args =
          direction == Direction::kForward ? node.collective.forward : node.collective.backward;
      if (args.map == Map::kIdentity || (direction == Direction::kBackward && !node.needs_grad))
        continue;
      drops.push_back({.kind = CollectiveEdit{
                           .operation = node.name, .direction = direction, .map = Map::kIdentity}});
    }
  }
  return drops;
}

std::vector<Edit> RuleDrops(const Scenario& scenario, const ProofRun& clean) {
  std::vector<Edit> drops;
  const FinalizePreset preset = *Finalizers().Find(scenario.finalizer);
  for (const FinalizeStep& step : preset.steps) {
    for (const FinalizeRule& rule : step.rules) {
      bool claims = false;
      for (const Param& param : clean.model->params().all()) {
        claims |= Claiming(step, param, EffectiveFinalizeConfig(scenario)) == &rule;
      }
      if (claims) drops.push_back({.kind = RuleEdit{.rule = rule.name}});
    }
  }
  return drops;
}

std::vector<Edit> MarkDrops(const ProofRun& clean) {
  std::vector<Edit> drops;
  for (const Param& param : clean.model->params().all()) {
    if (!param.requires_grad || !param.marks.sequence_parallel) continue;
    drops.push_back(
        {.kind = MarkEdit{.param = param.name, .set = false, .when = When::kAfterBackward}});
  }
  return drops;
}

bool ProvedEqual(const RunOnce& run) {
  for (const auto& [param, verdict] : run.verdicts) {
    if (verdict.outcome != Outcome::kRight || run.proof.proofs.at(param).outcome != Outcome::kRight)
      return false;
  }
  return true;
}

bool Found(const RunOnce& run) {
  for (const auto& [param, verdict] : run.verdicts) {
    if (verdict.outcome == Outcome::kWrong || verdict.outcome == Outcome::kNoStatement) return true;
  }
  return false;
}

void Check(const Scenario& scenario, const Edit& drop, Counts& counts) {
  const RunOnce run = RunScenarioOnce(scenario, std::vector<Edit>{drop}, SimOptions());
  const std::string what = scenario.name + ": " + Describe(drop);
  for (const std::string& disagreement : run.disagreements)
    ADD_FAILURE() << what << ": " << disagreement;
  if (!run.run_status.ok()) {
    EXPECT_EQ(KindOf(run.run_status), RunFailure::kNone) << what << ": " << run.run_status;
    const auto* collective = std::get_if<CollectiveEdit>(&drop.kind);
    ASSERT_NE(collective, nullptr) << what << ": " << run.run_status;
    EXPECT_NE(run.run_status.message().find('#'), std::string::npos)
        << what << " names no operation: " << run.run_status;
    ++counts.refused;
  } else if (Found(run)) {
    ++counts.found;
  } else if (ProvedEqual(run)) {
    ++counts.equal;
  } else {
    ADD_FAILURE() << what << ": neither found nor proved equal";
  }
}

void CheckAll(const Scenario& scenario, const std::vector<Edit>& drops, Counts& counts) {
  for (size_t i = 0; i < drops.size(); i += kSearchStride) Check(scenario, drops[i], counts);
}

TEST(Drops, EveryCommunicationRuleAndMarkOfCleanScenarios) {
  Counts collectives, rules, marks;
  for (const ScenarioFile& file : testing::ShippedFiles()) {
    const Scenario scenario = testing::Shipped(file.name);
    if (!scenario.defects.empty() || !scenario.expectations.empty()) continue;
    const ProofRun clean = Prove(scenario, {});
    CheckAll(scenario, CollectiveDrops(clean), collectives);
    CheckAll(scenario, RuleDrops(scenario, clean), rules);
    CheckAll(scenario, MarkDrops(clean), marks);
  }
  std::cout << "communications: " << collectives << "\nrules: " << rules << "\nmarks: " << marks
            << std::endl;
  EXPECT_GT(collectives.found, 0);
  EXPECT_GT(rules.found, 0);
  EXPECT_GT(marks.found, 0);
}

}  // namespace
}  // namespace sumonce

// Edits of rules: what each parameter's rule becomes, and how many rules many edits make.
#include "gtest/gtest.h"
#include "sim/defects/effect.h"
#include "sim/finalize/finalizer.h"

namespace sumonce {
namespace {

FinalizePreset Edited(const std::vector<RuleEdit>& edits) {
  FinalizePreset preset = *Finalizers().Find("megatron_core_0_16");
  for (const RuleEdit& edit : edits) MakeEffect(edit, 0)->OnPreset(preset);
  return preset;
}

RuleEdit Edit(RuleEdit::How how, const std::string& param) {
  return {.how = how, .rule = "data_parallel_sum", .param = param, .group = ""};
}

const FinalizeRule& RuleOf(const FinalizePreset& preset, const std::string& name) {
  Param param;
  param.name = name;
  for (const FinalizeStep& step : preset.steps) {
    if (step.name != "data_parallel") continue;
    return *Claiming(step, param, {});
  }
  ADD_FAILURE() << "no step data_parallel";
  return preset.steps[0].rules[0];
}

size_t CountOfRules(const FinalizePreset& preset) {
  size_t count = 0;
  for (const FinalizeStep& step : preset.steps) count += step.rules.size();
  return count;
}

TEST(RuleEdits, ChangeTheirParametersOnly) {
  const FinalizePreset preset = Edited({Edit(RuleEdit::How::kAverage, "a.*")});
  EXPECT_EQ(RuleOf(preset, "a.x").map, Map::kAvg);
  EXPECT_EQ(RuleOf(preset, "b.x").map, Map::kSum);
}

// One after the other, each on what the earlier ones left.
TEST(RuleEdits, AddUpOnTheSameParameter) {
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"*", "a.x"}, {"a.*", "*.x"}, {"a.x", "*"}, {"a.x", "a.*"}, {"a.x", "a.x"}}) {
    const FinalizePreset preset =
        Edited({Edit(RuleEdit::How::kAverage, first), Edit(RuleEdit::How::kDrop, second)});
    EXPECT_EQ(RuleOf(preset, "a.x").map, Map::kIdentity) << first << " " << second;
    EXPECT_EQ(RuleOf(preset, "a.x").divided_by, "") << first << " " << second;
  }
  const FinalizePreset preset =
      Edited({Edit(RuleEdit::How::kDrop, "a.x"), Edit(RuleEdit::How::kAverage, "a.*")});
  EXPECT_EQ(RuleOf(preset, "a.x").map, Map::kAvg);
  EXPECT_EQ(RuleOf(preset, "a.y").map, Map::kAvg);
  EXPECT_EQ(RuleOf(preset, "b.y").map, Map::kSum);
}

// Cures come one for each wrong parameter: they used to double the rules each.
TEST(RuleEdits, OfManySingleParametersMakeOneRuleEach) {
  std::vector<RuleEdit> edits = {Edit(RuleEdit::How::kAverage, "*")};
  for (int i = 0; i < 100; ++i)
    edits.push_back(Edit(RuleEdit::How::kDrop, "layer." + std::to_string(i)));
  const FinalizePreset preset = Edited(edits);
  EXPECT_LE(CountOfRules(preset), CountOfRules(Edited({})) + 200);
  EXPECT_EQ(RuleOf(preset, "layer.57").map, Map::kIdentity);
  EXPECT_EQ(RuleOf(preset, "layer.100").map, Map::kAvg);
}

}  // namespace
}  // namespace sumonce

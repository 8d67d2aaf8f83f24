// A rule of the finalizer is dropped, repeated, averages instead of summing, or reduces over another group, for the
// parameters of a glob.
#include <algorithm>

#include "base/text.h"
#include "sim/defects/effect.h"

namespace sumonce {
namespace {

// `rule` for the parameters of `glob` only; `!inside`: for the others only.
FinalizeRule Restrict(FinalizeRule rule, const std::string& glob, bool inside) {
  rule.claims = [claims = rule.claims, glob, inside](const Param& param, const FinalizeConfig& config) {
    return GlobMatches(glob, param.name) == inside && claims(param, config);
  };
  return rule;
}

class RuleEffect : public Effect {
 public:
  explicit RuleEffect(RuleEdit edit) : edit_(std::move(edit)) {}

  void OnPreset(FinalizePreset& preset) override {
    for (size_t i = 0; i < preset.steps.size(); ++i) {
      std::vector<FinalizeRule>& rules = preset.steps[i].rules;
      const auto found = std::find_if(rules.begin(), rules.end(), [&](const auto& rule) { return rule.name == edit_.rule; });
      if (found == rules.end()) continue;
      Change(preset, i, static_cast<size_t>(found - rules.begin()));
      return;
    }
  }

 private:
  void Change(FinalizePreset& preset, size_t step, size_t position) {
    std::vector<FinalizeRule>& rules = preset.steps[step].rules;
    FinalizeRule changed = Restrict(rules[position], edit_.param, true);
    if (edit_.how == RuleEdit::How::kRepeat) {
      changed.divide_by_group = false;
      changed.name += " again";
      preset.steps.insert(preset.steps.begin() + step + 1, {.name = preset.steps[step].name + "_again", .rules = {changed}});
      return;
    }
    rules[position] = Restrict(rules[position], edit_.param, false);
    if (edit_.how == RuleEdit::How::kAverage) changed.map = Map::kAvg;
    if (edit_.how == RuleEdit::How::kOtherGroup) {
      changed.group = edit_.group;
      changed.axes = AxesOfGroup(edit_.group);
    }
    // A dropped rule still wins the parameter (no later rule of the step takes its place), and does nothing.
    if (edit_.how == RuleEdit::How::kDrop) {
      changed.map = Map::kIdentity;
      changed.divide_by_group = false;
      changed.times_inverse_tokens = false;
    }
    rules.insert(rules.begin() + position, changed);
  }

  RuleEdit edit_;
};

class AddRuleEffect : public Effect {
 public:
  explicit AddRuleEffect(AddRuleEdit edit) : edit_(std::move(edit)) {}

  void OnPreset(FinalizePreset& preset) override {
    FinalizeRule rule{.name = "added_" + std::string(Name(edit_.map)),
                      .says = "added for " + edit_.param,
                      .axes = AxesOfGroup(edit_.group),
                      .group = edit_.group,
                      .map = edit_.map,
                      .claims = [glob = edit_.param](const Param& param, const FinalizeConfig&) {
                        return GlobMatches(glob, param.name);
                      }};
    preset.steps.push_back({.name = "added", .rules = {std::move(rule)}});
  }

 private:
  AddRuleEdit edit_;
};

}  // namespace

std::unique_ptr<Effect> MakeEffect(const RuleEdit& edit, int) { return std::make_unique<RuleEffect>(edit); }
std::unique_ptr<Effect> MakeEffect(const AddRuleEdit& edit, int) { return std::make_unique<AddRuleEffect>(edit); }

}  // namespace sumonce

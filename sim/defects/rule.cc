// A rule of the finalizer is dropped, repeated, averages instead of summing, or reduces over
// another group, for the parameters of a glob.
#include <algorithm>

#include "base/text.h"
#include "sim/defects/effect.h"

namespace sumonce {
namespace {

// `rule` for the parameters of `glob` only.
FinalizeRule Restrict(FinalizeRule rule, const std::string& glob) {
  rule.claims = [claims = rule.claims, glob](const Param& param, const FinalizeConfig& config) {
    return GlobMatches(glob, param.name) && claims(param, config);
  };
  rule.only = glob;
  return rule;
}

bool IsOneName(const std::string& glob) {
  return !glob.empty() && glob.find_first_of("*?[{") == std::string::npos;
}

// A rule narrowed to `only` claims nothing of `glob`, as far as the two texts tell.
bool Apart(const std::string& only, const std::string& glob) {
  if (IsOneName(only)) return !GlobMatches(glob, only);
  return !only.empty() && IsOneName(glob) && !GlobMatches(only, glob);
}

// All that a rule narrowed to `only` claims is of `glob`, as far as the two texts tell.
bool Covers(const std::string& glob, const std::string& only) {
  return glob == "*" || glob == only || (IsOneName(only) && GlobMatches(glob, only));
}

class RuleEffect : public Effect {
 public:
  explicit RuleEffect(RuleEdit edit) : edit_(std::move(edit)) {}

  void OnPreset(FinalizePreset& preset) override {
    for (size_t i = 0; i < preset.steps.size(); ++i) {
      FinalizeStep& step = preset.steps[i];
      const auto named = [&](const FinalizeRule& rule) { return rule.name == edit_.rule; };
      if (std::none_of(step.rules.begin(), step.rules.end(), named)) continue;
      if (edit_.how == RuleEdit::How::kRepeat) {
        Repeat(preset, i);
      } else {
        Change(step);
      }
      return;
    }
  }

 private:
  // The rule's work on these parameters once more, in a step of its own behind the first.
  void Repeat(FinalizePreset& preset, size_t step) {
    FinalizeStep again{.name = preset.steps[step].name + "_again", .rules = {}};
    for (const FinalizeRule& rule : preset.steps[step].rules) {
      if (rule.name != edit_.rule) continue;
      again.rules.push_back(Restrict(rule, edit_.param));
      again.rules.back().divided_by.clear();
      again.rules.back().name += " again";
    }
    preset.steps.insert(preset.steps.begin() + step + 1, std::move(again));
  }

  // Every rule of this name (earlier edits may have made several) is changed for these parameters:
  // as a whole where it claims no others, else by a changed copy in front of it, since the first
  // rule of a step that claims a parameter wins. A rule that claims none of them stays alone, so
  // many edits of single parameters make no more rules than there are edits.
  void Change(FinalizeStep& step) {
    std::vector<FinalizeRule> rules;
    for (FinalizeRule& rule : step.rules) {
      if (rule.name != edit_.rule || Apart(rule.only, edit_.param)) {
        rules.push_back(std::move(rule));
      } else if (Covers(edit_.param, rule.only)) {
        rules.push_back(Changed(std::move(rule)));
      } else {
        rules.push_back(Changed(Restrict(rule, edit_.param)));
        rules.push_back(std::move(rule));
      }
    }
    step.rules = std::move(rules);
  }

  FinalizeRule Changed(FinalizeRule rule) const {
    switch (edit_.how) {
      case RuleEdit::How::kAverage:
        rule.map = Map::kAvg;
        break;
      case RuleEdit::How::kOtherGroup:
        rule.group = edit_.group;
        rule.axes = AxesOfGroup(edit_.group);
        if (!rule.divided_by.empty()) rule.divided_by = edit_.group;
        break;
      case RuleEdit::How::kDrop:
        // It still wins the parameter (no later rule of the step takes its place), and does
        // nothing.
        rule.map = Map::kIdentity;
        rule.divided_by.clear();
        rule.times_inverse_tokens = false;
        break;
      case RuleEdit::How::kRepeat:
        break;
    }
    return rule;
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

std::unique_ptr<Effect> MakeEffect(const RuleEdit& edit, int) {
  return std::make_unique<RuleEffect>(edit);
}
std::unique_ptr<Effect> MakeEffect(const AddRuleEdit& edit, int) {
  return std::make_unique<AddRuleEffect>(edit);
}

}  // namespace sumonce

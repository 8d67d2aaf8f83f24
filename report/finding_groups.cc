#include "report/finding_groups.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "report/describe.h"

namespace sumonce {
namespace {

auto Key(const Finding& finding) {
  const Verdict& verdict = finding.verdict;
  const std::string trial = finding.cure ? TrialText(*finding.cure) : "";
  return std::tuple(verdict.outcome, verdict.mechanism, verdict.axis, verdict.coefficient,
                    verdict.grad_class, verdict.action, verdict.operation, verdict.ranks,
                    verdict.consequences, finding.expectation != nullptr, trial);
}

template <typename T>
void AddOnce(const T& item, std::vector<T>& items) {
  if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(item);
}

}  // namespace

std::vector<FindingGroup> GroupFindings(std::span<const Finding> findings) {
  std::vector<FindingGroup> groups;
  std::map<decltype(Key(findings.front())), size_t> index;
  for (const Finding& finding : findings) {
    const auto [entry, added] = index.try_emplace(Key(finding), groups.size());
    if (added) groups.push_back({.first = &finding});
    FindingGroup& group = groups[entry->second];
    AddOnce(finding.verdict.param, group.params);
    AddOnce(finding.verdict.step, group.steps);
    if (finding.cure) AddOnce(finding.cure->text, group.cures);
  }
  for (FindingGroup& group : groups) std::sort(group.steps.begin(), group.steps.end());
  return groups;
}

std::string StepsText(const std::vector<int>& steps) {
  if (steps.empty() || (steps.size() == 1 && steps[0] == 1)) return "";
  if (steps.size() == 1) return absl::StrCat("step ", steps[0]);
  if (steps.back() - steps.front() + 1 == static_cast<int>(steps.size()))
    return absl::StrCat("steps ", steps.front(), "-", steps.back());
  std::vector<std::string> names;
  for (const int step : steps) names.push_back(absl::StrCat(step));
  return absl::StrCat("steps ", ListText(names, 3));
}

}  // namespace sumonce

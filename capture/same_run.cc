#include "capture/same_run.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sumonce::capture {
namespace {

constexpr size_t kDifferencesShown = 6;

void Add(const std::string& prefix, const Attributes& attributes, RunFacts& facts) {
  for (const auto& [name, value] : attributes) facts[prefix + name] = ToText(value);
}

std::string ValueOf(const RunFacts& facts, const std::string& key) {
  const auto fact = facts.find(key);
  if (fact != facts.end()) return fact->second;
  return key.starts_with("mesh.") ? "1" : "absent";
}

}  // namespace

RunFacts RunFactsOf(const Manifest& identity, const Manifest& common) {
  RunFacts facts = {{"step", absl::StrCat(identity.step)},
                    {"world_size", absl::StrCat(identity.world_size)}};
  for (const auto& [axis, entry] : identity.mesh) {
    if (entry.size > 1) facts["mesh." + axis] = absl::StrCat(entry.size);
  }
  // A run that has a name needs no more: its ranks may be configured apart, and write to folders of
  // their own.
  if (!identity.run.empty()) {
    facts["run"] = identity.run;
    return facts;
  }
  if (!identity.case_name.empty()) facts["case"] = identity.case_name;
  for (const auto& [package, version] : common.framework) facts["framework." + package] = version;
  Add("config.", common.config, facts);
  Add("ddp.", common.ddp, facts);
  Add("optimizer.", common.optimizer, facts);
  Add("loss_weights.", identity.loss_weights, facts);
  if (identity.clip_grad) facts["clip_grad"] = absl::StrCat(*identity.clip_grad);
  return facts;
}

size_t MostCommon(std::span<const RunFacts> facts) {
  std::map<RunFacts, std::pair<size_t, size_t>> counts;  // how often, where first
  for (size_t i = 0; i < facts.size(); ++i)
    ++counts.try_emplace(facts[i], 0, i).first->second.first;
  std::pair<size_t, size_t> best = {0, 0};
  for (const auto& [key, count] : counts) {
    if (count.first > best.first || (count.first == best.first && count.second < best.second))
      best = count;
  }
  return best.second;
}

RunFacts OfEveryStep(RunFacts facts) {
  std::erase_if(facts, [](const auto& fact) {
    const std::string& key = fact.first;
    return key != "run" && key != "case" && key != "world_size" && !key.starts_with("mesh.") &&
           !key.starts_with("framework.");
  });
  return facts;
}

std::string ForeignText(const std::string& path, const RunFacts& facts, const RunFacts& run,
                        const std::string& other) {
  std::map<std::string, bool> keys;
  for (const auto& [key, value] : facts) keys[key];
  for (const auto& [key, value] : run) keys[key];
  std::vector<std::string> differences;
  size_t left = 0;
  for (const auto& [key, unused] : keys) {
    // A package that only some ranks had in use says nothing.
    const bool of_both = facts.contains(key) && run.contains(key);
    if (!of_both && key.starts_with("framework.")) continue;
    const std::string here = ValueOf(facts, key), there = ValueOf(run, key);
    if (here == there) continue;
    if (differences.size() == kDifferencesShown) {
      ++left;
    } else {
      differences.push_back(absl::StrCat(key, " ", here, ", not ", there));
    }
  }
  if (differences.empty()) return "";
  if (left > 0) differences.push_back(absl::StrCat("and ", left, " more"));
  return absl::StrCat(path, ": is of another run than ", other, ": ",
                      absl::StrJoin(differences, "; "),
                      "; a capture is of one run: put its own there");
}

std::string RanksText(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    parts.push_back(end - i > 2 ? absl::StrCat(ranks[i], "-", ranks[end - 1])
                                : absl::StrJoin(ranks.begin() + i, ranks.begin() + end, ", "));
    i = end;
  }
  return absl::StrJoin(parts, ", ");
}

std::string NoFileText(const std::string& path, const std::vector<int>& ranks, int world_size) {
  return absl::StrCat(path, ": no file of rank ", RanksText(ranks), " of ", world_size,
                      "; copy all ranks' files together");
}

}  // namespace sumonce::capture

// The audit of every captured run with the classes that its modules prove: what the numbers leave
// open is decided, and nothing is claimed that is not so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "capture/audit/audit.h"
#include "capture/lint/class_hints.h"

namespace sumonce::lint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> CapturedRuns() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(SUMONCE_TEST_DATA "/captures")) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class WithModules : public ::testing::TestWithParam<std::string> {
 protected:
  WithModules() : folder_(SUMONCE_TEST_DATA "/captures/" + std::string(GetParam())) {
    std::ifstream file(folder_ + "/expected.json");
    expected_ = json::parse(file);
    const auto manifests = capture::LoadManifests(folder_);
    EXPECT_TRUE(manifests.ok()) << manifests.status();
    hints_ = *HintsFor(*manifests, {});
    audit_ = *capture::AuditCapture(folder_, {.hints = &hints_});
  }

  // The words that fit; {"RIGHT"} if nothing is expected.
  std::set<std::string> Accepted(const std::string& param) const {
    const auto entry = expected_["parameters"].find(param);
    if (entry == expected_["parameters"].end()) return {"RIGHT"};
    std::set<std::string> words = {(*entry)["mechanism"].get<std::string>()};
    for (const json& word : entry->value("also_accepted", json::array()))
      words.insert(word.get<std::string>());
    return words;
  }
  static std::string WordOf(const Verdict& verdict) {
    return std::string(verdict.outcome == Outcome::kWrong ? Name(verdict.mechanism)
                                                          : Name(verdict.outcome));
  }

  std::string folder_;
  json expected_;
  capture::ClassHints hints_;
  capture::Audit audit_;
};

TEST_P(WithModules, NothingIsClaimedThatIsNotSo) {
  for (const capture::AuditedParam& param : audit_.params) {
    if (param.verdict.outcome == Outcome::kNoEvidence) continue;
    const std::set<std::string> accepted = Accepted(param.name);
    if (param.verdict.outcome != Outcome::kNoStatement) {
      EXPECT_TRUE(accepted.contains(WordOf(param.verdict)))
          << param.name << ": " << WordOf(param.verdict);
      continue;
    }
    // Open still: the right word is among the possible ones.
    EXPECT_TRUE(std::any_of(accepted.begin(), accepted.end(), [&](const std::string& word) {
      return std::find(param.verdict.possible.begin(), param.verdict.possible.end(), word) !=
             param.verdict.possible.end();
    })) << param.name;
  }
}

// What an audit without modules names as deciding does decide, or leaves fewer possibilities; and
// what the modules would decide is named.
TEST_P(WithModules, WhatIsSaidToDecideDoes) {
  const capture::Audit alone = *capture::AuditCapture(folder_, {.unused_hints = &hints_});
  const capture::Audit against =
      *capture::AuditCapture(folder_, {.against = folder_ + "/reference"});
  ASSERT_EQ(alone.params.size(), audit_.params.size());
  ASSERT_EQ(alone.params.size(), against.params.size());
  for (size_t i = 0; i < alone.params.size(); ++i) {
    const Verdict& open = alone.params[i].verdict;
    if (open.possible.empty()) continue;
    const size_t left = open.possible.size();
    const bool modules_decide = audit_.params[i].verdict.possible.size() < left;
    EXPECT_EQ(open.decides.find("module's class") != std::string::npos, modules_decide)
        << open.param << ": " << open.decides;
    EXPECT_NE(open.decides.find("--against"), std::string::npos) << open.param;
    EXPECT_LT(against.params[i].verdict.possible.size(), left) << open.param;
    // With the modules in use they are not named again.
    EXPECT_EQ(audit_.params[i].verdict.decides.find("module's class"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Lint, WithModules, ::testing::ValuesIn(CapturedRuns()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// What the numbers alone cannot decide, the modules do.
class Decided : public WithModules {};
TEST_P(Decided, EveryParameterHasItsVerdict) {
  for (const capture::AuditedParam& param : audit_.params) {
    if (param.verdict.outcome == Outcome::kNoEvidence) continue;
    EXPECT_TRUE(Accepted(param.name).contains(WordOf(param.verdict)))
        << param.name << ": " << WordOf(param.verdict);
  }
}
INSTANTIATE_TEST_SUITE_P(Lint, Decided,
                         ::testing::Values("gdn-gamma-tp2-bug", "gdn-gamma-tp2-flag-off",
                                           "gdn-gather-lora-tp2-bug",
                                           "gdn-gather-lora-tp2-flag-off",
                                           "stray-flag-sp-off-0.12-bug", "lora-replica-bug",
                                           "averaged-complete-right"));

// One finding, all that inherit it under it.
class UpstreamOnce : public WithModules {};
TEST_P(UpstreamOnce, AllThatInheritItAreListedUnderIt) {
  const std::string root = "decoder.layers.1.self_attention.linear_kv_down_proj.weight";
  size_t inherited = 0;
  for (const capture::AuditedParam& param : audit_.params) {
    const auto entry = expected_["parameters"].find(param.name);
    const bool inherits = entry != expected_["parameters"].end() && entry->contains("consequence");
    EXPECT_EQ(param.consequence, inherits) << param.name;
    if (!inherits) continue;
    EXPECT_EQ(param.cause, root) << param.name;
    ++inherited;
  }
  EXPECT_GT(inherited, 10u);
  const auto found = std::find_if(audit_.params.begin(), audit_.params.end(),
                                  [&](const auto& param) { return param.name == root; });
  ASSERT_NE(found, audit_.params.end());
  EXPECT_TRUE(Accepted(root).contains(WordOf(found->verdict)));
}
INSTANTIATE_TEST_SUITE_P(Lint, UpstreamOnce,
                         ::testing::Values("mla-te-sp-off-bug", "mla-q-layernorm-sp-off-bug"));

}  // namespace
}  // namespace sumonce::lint

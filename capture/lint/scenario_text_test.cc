// Every fault of a captured manifest becomes a scenario that shows it: read by the scenario reader,
// simulated and proved, and cured.
#include "capture/lint/scenario_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim/scenario_reader.h"
#include "verify/runner.h"

namespace sumonce::lint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Statements StatementsOfCapture(const std::string& name) {
  const auto manifests = capture::LoadManifests(SUMONCE_TEST_DATA "/captures/" + name);
  EXPECT_TRUE(manifests.ok()) << manifests.status();
  return *StateParameters(*manifests, {});
}

class FromCapture : public ::testing::TestWithParam<const char*> {};

TEST_P(FromCapture, TheScenarioShowsTheFault) {
  const Statements statements = StatementsOfCapture(GetParam());
  const auto text = ScenarioText(statements, FaultsOf(statements), GetParam());
  ASSERT_TRUE(text.ok()) << text.status();
  std::string pattern = ::testing::TempDir() + "/scenario_XXXXXX";
  const std::string dir = mkdtemp(pattern.data());
  const std::string path = dir + "/shown.textproto";
  std::ofstream(path) << *text;
  const ReadResult read = ReadScenario(path, "captured/shown", {});
  ASSERT_TRUE(read.ok()) << Format(read.mistakes[0]) << "\n" << *text;
  EXPECT_LE(read.scenario.model.layers.size(), 2u) << "not the smallest";
  EXPECT_FALSE(read.scenario.expectations.empty());
  for (const ScenarioResult& result : RunScenario(read.scenario, {})) {
    EXPECT_EQ(result.outcome, RunOutcome::kPass)
        << result.name << ": " << ::testing::PrintToString(result.failures) << "\n"
        << *text;
  }
  fs::remove_all(dir);
}

INSTANTIATE_TEST_SUITE_P(
    Lint, FromCapture,
    ::testing::Values("lora-replica-bug", "lora-replica-averaged-bug", "gdn-gamma-tp2-bug",
                      "gdn-gather-lora-tp2-bug", "averaged-final-norm-bug", "averaged-sharded-bug",
                      "norm-flag-missing-bug", "qk-layernorm-config-off-bug",
                      "stray-flag-sp-off-0.12-bug", "gdn-out-norm-sp-off-tp2-bug",
                      "mla-te-sp-off-bug", "mla-q-layernorm-sp-off-bug",
                      "norm-replica-counted-tp-times-bug", "lora-te-linear-norm-tp-times",
                      "mla-te-sp-on-0.16-norm-bug"),
    [](const auto& info) {
      std::string name = info.param;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

TEST(ScenarioOfManifest, OneLayerOfEachKindIsKept) {
  const Statements statements = StatementsOfCapture("lora-replica-bug");
  const auto text = ScenarioText(statements, FaultsOf(statements), "x");
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("mesh { tp: 4 dp: 1 }"));
  EXPECT_EQ(text->find("layers.1."), std::string::npos) << *text;
}

TEST(ScenarioOfManifest, WhatTheModelDoesNotShowIsRefused) {
  const Statements right = StatementsOfCapture("lora-replica-fixed");
  EXPECT_THAT(std::string(ScenarioText(right, FaultsOf(right), "x").status().message()),
              HasSubstr("there is no fault to show"));
  const std::string param = "decoder.layers.0.self_attention.linear_proj.lora_B.default.weight";
  EXPECT_THAT(
      std::string(ScenarioText(right, {{param, Mechanism::kStale}}, "x").status().message()),
      HasSubstr("STALE cannot be shown in a scenario: marks, modules and version alone"));
  const Statements experts = StatementsOfCapture("moe-tp2-ep1-etp1-bug");
  EXPECT_THAT(
      std::string(ScenarioText(experts,
                               {{"decoder.layers.0.mlp.experts.local_experts.0.linear_fc1.weight",
                                 Mechanism::kMissingSum}},
                               "x")
                      .status()
                      .message()),
      HasSubstr("MoELayer (mixture of experts) is not modelled"));
}

}  // namespace
}  // namespace sumonce::lint

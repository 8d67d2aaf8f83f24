#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "report/formats.h"
#include "report/testing/sample_results.h"
#include "report/version.h"

namespace sumonce {
namespace {

using nlohmann::json;
using ::sumonce::testing::kLoraB;
using ::sumonce::testing::LoraResult;
using ::sumonce::testing::LoraScenario;
using ::sumonce::testing::LoraTable;

std::string JsonText(const std::vector<ScenarioResult>& results) {
  std::ostringstream out;
  const auto reporter = FindReportFormat("json")->make(out, {});
  Summary summary;
  reporter->Begin(static_cast<int>(results.size()));
  for (const ScenarioResult& result : results) {
    summary.Count(result);
    reporter->OnResult(result);
  }
  EXPECT_EQ(out.str(), "") << "JSON is one object: nothing before the end";
  reporter->End(summary);
  return out.str();
}

// Every field of a finding, by the names that scripts rely on.
TEST(Json, FindingHasEveryFieldUnderItsName) {
  const Scenario scenario = LoraScenario();
  ScenarioResult result = LoraResult(scenario, RunOutcome::kPass);
  result.findings[0].expectation = &scenario.expectations[0];
  result.findings[0].verdict.consequences = {Mechanism::kReplicaDrift};
  const json finding = json::parse(JsonText({result}))["scenarios"][0]["findings"][0];
  const json expected = {
      {"param", kLoraB},
      {"step", 1},
      {"outcome", "WRONG"},
      {"mechanism", "MISSING_SUM"},
      {"axis", "tp"},
      {"coefficient", "none: per rank"},
      {"per_rank",
       {"rank 0: exactly zero", "rank 1: 0.31 of the reference's norm",
        "rank 2: 0.38 of the reference's norm", "rank 3: 0.67 of the reference's norm"}},
      {"class", "partial"},
      {"action", "none"},
      {"evidence", {"the sum over tp is the reference"}},
      {"cure", "set sequence_parallel=true on " + kLoraB},
      {"cure_tried", "right, in numbers and for every tp"},
      {"proof", "WRONG: MISSING_SUM over tp, coefficient none: per rank"},
      {"expected", true},
      {"rule", ""},
      {"operation", ""},
      {"affected", json::array()},
      {"possible", json::array()},
      {"decides", ""},
      {"consequences", {"REPLICA_DRIFT"}}};
  EXPECT_EQ(finding, expected) << finding.dump(2);
}

TEST(Json, ScenarioHasEveryFieldEvenWhenEmpty) {
  const json report =
      json::parse(JsonText({ScenarioResult{.name = "a/b", .mesh = {.tp = 2, .dp = 3}}}));
  const json expected = {{"name", "a/b"},
                         {"file", ""},
                         {"outcome", "PASS"},
                         {"elapsed_us", 0},
                         {"digest", ""},
                         {"findings", json::array()},
                         {"failures", json::array()},
                         {"conditions", json::array()},
                         {"world_size", 6},
                         {"mesh", "tp=2 dp=3"},
                         {"reproduce", ""},
                         {"params_right", 0},
                         {"tables", json::array()},
                         {"skip_reason", ""},
                         {"notes", json::array()},
                         {"internal_error", false},
                         {"params_wrong", 0},
                         {"params_without_evidence", 0},
                         {"undecided", json::array()},
                         {"about", ""},
                         {"statements", json::array()},
                         {"text_tables", json::array()}};
  EXPECT_EQ(report["scenarios"][0], expected) << report.dump(2);
  EXPECT_EQ(report["schema_version"], 1);
  EXPECT_EQ(report["sumonce_version"], Version());
  EXPECT_EQ(report["passed"], 1);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["skipped"], 0);
  EXPECT_EQ(report["interrupted"], false);
}

// 64-bit integers would become strings: every number stays a number.
TEST(Json, NumbersAreNumbers) {
  ScenarioResult result{.name = "a/b", .elapsed_us = 1e15};
  result.tables = {LoraTable()};
  const json scenario = json::parse(JsonText({result}))["scenarios"][0];
  EXPECT_EQ(scenario["elapsed_us"].get<double>(), 1e15);
  EXPECT_EQ(scenario["tables"][0]["rows"][0]["values"], json({0.25, 1.5e-300, 12345.678, 2.0}));
  EXPECT_EQ(scenario["tables"][0]["columns"][3], "rank 3");
}

// A file name need not be UTF-8; the report still is.
TEST(Json, BytesThatAreNotUtf8AreReplaced) {
  const json report = json::parse(JsonText({ScenarioResult{.name = "a/caf\xC3\xA9 \xE9\xFF"}}));
  EXPECT_EQ(report["scenarios"][0]["name"], "a/caf\xC3\xA9 ??");
}

TEST(Json, CureThatNobodyTriedHasNoResult) {
  ScenarioResult result{.name = "a/b"};
  result.findings = {testing::MissingSum(kLoraB)};
  result.findings[0].cure->tried = false;
  const json finding = json::parse(JsonText({result}))["scenarios"][0]["findings"][0];
  EXPECT_NE(finding["cure"], "");
  EXPECT_EQ(finding["cure_tried"], "");
  EXPECT_EQ(finding["expected"], false);
}

}  // namespace
}  // namespace sumonce

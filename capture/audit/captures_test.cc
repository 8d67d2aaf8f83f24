// The audit of every captured run against what is known to be right: 50 steps of real frameworks,
// each with the mechanism that was put in (or is in the released version), and whether the ranks'
// files alone can decide it (tests/data/captures/README.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/text.h"
#include "capture/audit/audit.h"
#include "nlohmann/json.hpp"

namespace sumonce::capture {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> Cases() {
  std::vector<std::string> cases;
  for (const auto& entry : fs::directory_iterator(SUMONCE_TEST_DATA "/captures")) {
    if (entry.is_directory()) cases.push_back(entry.path().filename().string());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

class CaptureTest : public testing::TestWithParam<std::string> {
 protected:
  CaptureTest() : folder_(std::string(SUMONCE_TEST_DATA "/captures/") + GetParam()) {
    std::ifstream file(folder_ + "/expected.json");
    expected_ = json::parse(file);
  }

  Audit AuditOf(const std::string& against) const {
    absl::StatusOr<Audit> audit = AuditCapture(folder_, {.against = against});
    EXPECT_TRUE(audit.ok()) << audit.status();
    return audit.ok() ? *std::move(audit) : Audit();
  }

  bool RightCase() const { return expected_["outcome"] == "RIGHT"; }

  // What the file expects of a parameter; null: RIGHT.
  const json* Expected(const std::string& param) const {
    const auto entry = expected_["parameters"].find(param);
    return entry == expected_["parameters"].end() ? nullptr : &*entry;
  }

  // Whether one of the globs matches.
  static bool In(const json& globs, const std::string& param) {
    return std::any_of(globs.begin(), globs.end(), [&](const json& glob) {
      return GlobMatches(glob.get<std::string>(), param);
    });
  }

  static std::string WordOf(const Verdict& verdict) {
    return verdict.outcome == Outcome::kWrong ? std::string(Name(verdict.mechanism))
                                              : std::string(Name(verdict.outcome));
  }

  static void ExpectMechanism(const json& expected, const AuditedParam& param) {
    std::set<std::string> accepted = {expected["mechanism"].get<std::string>()};
    if (expected.contains("also_accepted")) {
      for (const json& word : expected["also_accepted"]) accepted.insert(word.get<std::string>());
    }
    EXPECT_TRUE(accepted.contains(WordOf(param.verdict)))
        << param.name << ": " << WordOf(param.verdict);
    ASSERT_TRUE(param.verdict.axis) << param.name;
    EXPECT_EQ(Name(*param.verdict.axis), expected["axis"].get<std::string>()) << param.name;
    EXPECT_EQ(param.verdict.coefficient, expected["coefficient"].get<std::string>()) << param.name;
  }

  // Right, zero, or a set with RIGHT in it: nothing is reported.
  static void ExpectNoFinding(const AuditedParam& param) {
    EXPECT_NE(param.verdict.outcome, Outcome::kWrong)
        << param.name << ": " << Name(param.verdict.mechanism);
    if (param.verdict.outcome == Outcome::kNoStatement)
      EXPECT_THAT(param.verdict.possible, testing::Contains("RIGHT")) << param.name;
  }

  // The recorded norm against that of the finalized gradients, counted once.
  void ExpectNorms(const Audit& audit, bool with_reference) const {
    const json& expected = expected_["grad_norm"];
    if (expected.is_null()) return;
    const NormFigures& norms = audit.norms.front();
    const auto near = [](double value) { return testing::DoubleNear(value, 1e-5 * value); };
    ASSERT_TRUE(norms.recorded && norms.counted_once && norms.implied) << norms.not_comparable;
    EXPECT_THAT(*norms.recorded, near(expected["captured"].get<double>()));
    EXPECT_THAT(*norms.counted_once, near(expected["finalized_counted_once"].get<double>()));
    // What the marks imply is what the framework did, in every version.
    EXPECT_THAT(*norms.implied, near(expected["captured"].get<double>()));
    EXPECT_EQ(norms.miscounted, !expected["mechanism"].is_null());
    if (!with_reference) return;
    ASSERT_TRUE(norms.reference);
    EXPECT_THAT(*norms.reference, near(expected["unsharded_run"].get<double>()));
  }

  std::string folder_;
  json expected_;
};

// From the ranks' files alone, without their module classes.
TEST_P(CaptureTest, Alone) {
  const Audit audit = AuditOf("");
  EXPECT_THAT(audit.faults, testing::IsEmpty());
  const json& alone = expected_["without_reference"];
  const bool decidable = alone["decidable"] == true;
  int undecided = 0;
  for (const AuditedParam& param : audit.params) {
    if (alone.contains("possible") && In(alone["parameters"], param.name)) {
      ++undecided;
      EXPECT_EQ(param.verdict.outcome, Outcome::kNoStatement) << param.name;
      EXPECT_EQ(json(param.verdict.possible), alone["possible"]) << param.name;
      EXPECT_NE(param.verdict.decides, "") << param.name;
      continue;
    }
    std::string visible;
    if (alone.contains("visible")) {
      for (const auto& [glob, word] : alone["visible"].items()) {
        if (GlobMatches(glob, param.name)) visible = word.get<std::string>();
      }
    }
    const json* expected = Expected(param.name);
    if (!visible.empty()) {
      EXPECT_EQ(WordOf(param.verdict), visible) << param.name;
      // What arrives wrong is listed under where it shows.
      EXPECT_EQ(param.consequence, visible == "UPSTREAM") << param.name;
      if (param.consequence) EXPECT_NE(Expected(param.cause), nullptr) << param.cause;
    } else if (expected && decidable) {
      ExpectMechanism(*expected, param);
    } else {
      ExpectNoFinding(param);
    }
  }
  EXPECT_EQ(undecided > 0, alone.contains("possible"));
  ExpectNorms(audit, false);
}

// Every verdict, with the unsharded run.
TEST_P(CaptureTest, AgainstTheUnshardedRun) {
  const Audit audit = AuditOf(folder_ + "/reference");
  EXPECT_THAT(audit.faults, testing::IsEmpty());
  double worst = 0;
  int findings = 0;
  for (const AuditedParam& param : audit.params) {
    EXPECT_TRUE(param.against) << param.name << ": " << param.not_compared;
    const json* expected = Expected(param.name);
    if (!expected) {
      EXPECT_THAT(WordOf(param.verdict), testing::AnyOf("RIGHT", "NO_EVIDENCE")) << param.name;
      worst = std::max(worst, param.reference_error);
      continue;
    }
    ++findings;
    ExpectMechanism(*expected, param);
    const bool consequence = expected->contains("consequence");
    EXPECT_EQ(param.consequence, consequence) << param.name;
    // Listed under a parameter that is a finding itself.
    if (consequence) {
      ASSERT_NE(Expected(param.cause), nullptr) << param.name << " under " << param.cause;
      EXPECT_FALSE(Expected(param.cause)->contains("consequence")) << param.cause;
    }
  }
  EXPECT_EQ(findings, static_cast<int>(expected_["parameters"].size()));
  const json& tolerance = expected_["tolerance"];
  EXPECT_LE(worst, 1.01 * tolerance["measured_on_the_right_ones"].get<double>() + 1e-12);
  ExpectNorms(audit, true);
}

// What is zero at the first step is said so, and seen at the next.
TEST_P(CaptureTest, StepsAreStacked) {
  if (!expected_.contains("no_evidence_at_step_1")) return;
  const absl::StatusOr<Audit> first = AuditCapture(folder_ + "/step-0001", {});
  ASSERT_TRUE(first.ok()) << first.status();
  std::set<std::string> silent;
  for (const AuditedParam& param : first->params) {
    if (param.verdict.outcome == Outcome::kNoEvidence) silent.insert(param.name);
  }
  for (const json& name : expected_["no_evidence_at_step_1"])
    EXPECT_TRUE(silent.contains(name.get<std::string>())) << name;
  for (const AuditedParam& param : AuditOf("").params)
    EXPECT_NE(param.verdict.outcome, Outcome::kNoEvidence) << param.name;
}

// A reference need not be unsharded: the same model and data on tp 2, on experts spread otherwise,
// with sections cut apart.
class OtherMeshTest : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(OtherMeshTest, GivesTheVerdictsOfTheUnshardedRun) {
  const std::string captures = SUMONCE_TEST_DATA "/captures/";
  const auto [name, other] = GetParam();
  const Audit whole =
      AuditCapture(captures + name, {.against = captures + name + "/reference"}).value();
  const Audit sharded = AuditCapture(captures + name, {.against = captures + other}).value();
  ASSERT_EQ(sharded.params.size(), whole.params.size());
  int wrong = 0;
  for (size_t i = 0; i < whole.params.size(); ++i) {
    const AuditedParam& found = sharded.params[i];
    EXPECT_TRUE(found.against) << found.name << ": " << found.not_compared;
    EXPECT_EQ(found.verdict.outcome, whole.params[i].verdict.outcome) << found.name;
    EXPECT_EQ(found.verdict.mechanism, whole.params[i].verdict.mechanism) << found.name;
    wrong += found.verdict.outcome == Outcome::kWrong ? 1 : 0;
  }
  EXPECT_GT(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, OtherMeshTest,
    testing::Values(std::pair("lora-replica-warm-bug", "lora-sp-off-averaged-right"),
                    std::pair("lora-replica-averaged-bug", "lora-te-linear-norm-right"),
                    std::pair("gdn-out-norm-sp-off-tp2-bug", "gdn-upstream-sp-on-tp2"),
                    std::pair("moe-tp2-ep1-etp1-bug", "moe-tp2-ep2-etp1-right"),
                    std::pair("mla-te-sp-off-bug", "mla-te-sp-on-0.19-right")));

INSTANTIATE_TEST_SUITE_P(All, CaptureTest, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace sumonce::capture

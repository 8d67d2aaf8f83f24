// Every shipped scenario that ends with gradients, saved as a capture: audited against its
// reference, the capture gets the run's own verdicts; audited alone, sets that contain them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "capture/audit/audit.h"
#include "capture/write/save_run.h"
#include "tests/system/shipped.h"
#include "verify/run_once.h"

namespace sumonce {
namespace {

namespace fs = std::filesystem;
using capture::Audit;
using capture::AuditedParam;

std::string Text(const Verdict& verdict) {
  std::string text =
      std::string(Name(verdict.outcome)) + " " + std::string(Name(verdict.mechanism));
  if (verdict.axis) text += " over " + std::string(Name(*verdict.axis));
  return text + " [" + verdict.coefficient + "]";
}

class SelfAudit {
 public:
  explicit SelfAudit(const Scenario& scenario, std::span<const Edit> edits)
      : run_(RunScenarioOnce(scenario, edits, SimOptions())),
        norm_type_(scenario.optimizer.norm_type) {
    std::string pattern = ::testing::TempDir() + "/self_audit_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    if (!run_.run_status.ok()) return;
    const absl::Status saved = capture::SaveRun(
        {.scenario = &scenario, .record = &run_.record, .name = scenario.name}, folder_, false);
    refused_ = absl::IsUnimplemented(saved);
    EXPECT_TRUE(saved.ok() || refused_) << saved;
  }
  ~SelfAudit() { fs::remove_all(folder_); }

  bool HasGradients() const { return run_.run_status.ok(); }
  bool refused() const { return refused_; }

  void CheckAgainst() const {
    const absl::StatusOr<Audit> audit =
        capture::AuditCapture(folder_, {.against = folder_ + "/reference", .threads = 1});
    ASSERT_TRUE(audit.ok()) << audit.status();
    EXPECT_EQ(audit->params.size(), run_.numbers.size());
    CheckNorm(*audit);
    for (const AuditedParam& param : audit->params) {
      const Verdict& expected = Expected(param.name);
      const Verdict& found = param.verdict;
      if (PartsByNorm(expected, found)) continue;
      const std::string what =
          param.name + ": the run says " + Text(expected) + ", the audit " + Text(found);
      EXPECT_EQ(found.outcome, expected.outcome) << what;
      if (!Unnamed(expected))
        EXPECT_TRUE(SameToNumbers(found.mechanism, expected.mechanism)) << what;
      const bool mixed = found.mechanism != expected.mechanism;
      if (expected.outcome != Outcome::kWrong || expected.mechanism == Mechanism::kUpstream ||
          mixed)
        continue;
      const bool by_proof = run_.numbers.at(param.name).outcome == Outcome::kNoEvidence;
      if (!by_proof) EXPECT_EQ(found.step, expected.step) << what;
      // Axes of one size give one factor two names.
      const bool same_factor =
          found.factor && expected.factor && std::abs(*found.factor - *expected.factor) < 1e-6;
      if (!same_factor && expected.axis && found.axis) EXPECT_EQ(found.axis, expected.axis) << what;
      if (!same_factor) EXPECT_EQ(found.coefficient, expected.coefficient) << what;
    }
  }

  void CheckAlone() const {
    const absl::StatusOr<Audit> audit = capture::AuditCapture(folder_, {.threads = 1});
    ASSERT_TRUE(audit.ok()) << audit.status();
    CheckNorm(*audit);
    for (const AuditedParam& param : audit->params) {
      const Verdict& expected = Expected(param.name);
      if (PartsByNorm(expected, param.verdict)) continue;
      std::set<std::string> possible(param.verdict.possible.begin(), param.verdict.possible.end());
      if (param.verdict.outcome == Outcome::kWrong)
        possible.insert(std::string(Name(param.verdict.mechanism)));
      if (param.verdict.outcome == Outcome::kRight) possible.insert("RIGHT");
      if (param.verdict.outcome == Outcome::kNoEvidence) possible.insert("NO_EVIDENCE");
      // What arrives wrong, and is finalized as it should be, looks right; the other mechanisms
      // that need a reference show in the shares of uses and microbatches that a simulation saves.
      if (possible.contains("RIGHT")) {
        for (const char* arrives_wrong : {"UPSTREAM", "WRONG_SCALE"})
          possible.insert(arrives_wrong);
      }
      if (param.verdict.outcome == Outcome::kWrong && expected.outcome == Outcome::kWrong &&
          SameToNumbers(param.verdict.mechanism, expected.mechanism))
        continue;
      const std::string word(expected.outcome == Outcome::kWrong ? Name(expected.mechanism)
                                                                 : Name(expected.outcome));
      if (Unnamed(expected)) {
        EXPECT_EQ(param.verdict.outcome, Outcome::kWrong) << param.name;
        continue;
      }
      EXPECT_THAT(possible, ::testing::Contains(word))
          << param.name << ": the audit alone says " << Text(param.verdict);
    }
  }

 private:
  // A norm that counts copies wrongly is found in both, and nowhere else. (The greatest entry is no
  // norm that a capture has a word for.)
  void CheckNorm(const Audit& audit) const {
    const StepRecord& first = run_.record.ranks[0][0];
    const bool found = std::any_of(audit.norms.begin(), audit.norms.end(),
                                   [](const auto& norms) { return norms.miscounted; });
    const bool square = first.grad_norm && norm_type_ == NormType::kL2;
    EXPECT_EQ(audit.norms[0].recorded.has_value(), square);
    if (square) EXPECT_EQ(*audit.norms[0].recorded, first.grad_norm->norm);
    // The audit looks at the first rank's norm, which is right where only the others' are not.
    EXPECT_EQ(found, square && run_.norm_verdict.has_value() && !DriftsByNorm());
  }

  // Ranks that clip by norms of their own: copies part, of which the run speaks once, beside the
  // norm, and the audit at each parameter.
  bool DriftsByNorm() const {
    return run_.norm_verdict &&
           run_.norm_verdict->consequences == std::vector<Mechanism>{Mechanism::kReplicaDrift};
  }
  bool PartsByNorm(const Verdict& expected, const Verdict& found) const {
    return DriftsByNorm() && expected.outcome == Outcome::kRight &&
           found.mechanism == Mechanism::kReplicaDrift;
  }

  // A call of the finalizer that gave what the run, which looks at what each rank sent, has no name
  // for. The audit, which looks at what each rank got, may have one.
  static bool Unnamed(const Verdict& verdict) {
    return verdict.mechanism == Mechanism::kUpstream && verdict.operation.starts_with("finalizer ");
  }

  // By the numbers; where those of the compared steps are zero the run's proof decides, and the
  // audit may have seen a later step.
  const Verdict& Expected(const std::string& param) const {
    const Verdict& numbers = run_.numbers.at(param);
    return numbers.outcome == Outcome::kNoEvidence ? run_.verdicts.at(param) : numbers;
  }

  // A use that no action serves, and a gradient that arrives as such a mixture, are one to numbers:
  // which it is the modules say.
  static bool SameToNumbers(Mechanism a, Mechanism b) {
    const auto mixed = [](Mechanism mechanism) {
      return mechanism == Mechanism::kMixedUse || mechanism == Mechanism::kUpstream;
    };
    // Summed twice behind what arrives wrong: the run names what arrives.
    const bool behind = a == Mechanism::kDoubleSum && b == Mechanism::kUpstream;
    return a == b || (mixed(a) && mixed(b)) || behind;
  }

  RunOnce run_;
  NormType norm_type_;
  bool refused_ = false;
  std::string folder_;
};

class SelfAuditTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SelfAuditTest, AgreesWithTheRun) {
  const Scenario scenario = testing::Shipped(GetParam());
  const SelfAudit broken(scenario, scenario.defects);
  if (!broken.HasGradients()) GTEST_SKIP() << "ends without gradients";
  if (broken.refused()) GTEST_SKIP() << "a layout that captures of version 1 cannot say";
  broken.CheckAgainst();
  broken.CheckAlone();
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const ScenarioFile& file : testing::ShippedFiles()) names.push_back(file.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, SelfAuditTest, ::testing::ValuesIn(Names()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace sumonce

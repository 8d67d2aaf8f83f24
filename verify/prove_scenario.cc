// ProveScenario: what the proof alone says of a scenario and its cured twin.
#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "verify/expectations.h"
#include "verify/explain.h"
#include "verify/grad_norm.h"
#include "verify/prove.h"
#include "verify/runner.h"

namespace sumonce {
namespace {

Verdict VerdictOf(const ProofRun& run, const Proof& proof) {
  Verdict verdict;
  verdict.param = proof.param;
  TakeOver(proof, verdict);
  verdict.evidence = ExplainClass(run, proof.param);
  if (!proof.reason.empty()) verdict.evidence.push_back(proof.reason);
  return verdict;
}

// What only numbers can show (a lost term, a drifted copy, a step) the proof cannot meet or miss:
// where it makes no statement, or the expectation is of a consequence, a fault that was expected is
// not contradicted.
bool ProofMeets(const Expectation& expectation, const Proof& proof) {
  if (proof.outcome == Outcome::kNoStatement) return true;
  if (proof.outcome != expectation.outcome) return false;
  const bool consequence = expectation.mechanism == Mechanism::kReplicaDrift ||
                           expectation.mechanism == Mechanism::kExportDiffers ||
                           expectation.mechanism == Mechanism::kNormMiscount;
  if (consequence || expectation.mechanism == Mechanism::kNone) return true;
  return expectation.mechanism == proof.mechanism &&
         (!expectation.axis || expectation.axis == proof.axis) &&
         (expectation.coefficient.empty() || expectation.coefficient == proof.coefficient);
}

// Of the norm, and of roundings, which states do not have.
bool OfARunThatEnds(const Expectation& expectation) {
  return expectation.param.empty() && (expectation.mechanism == Mechanism::kNormMiscount ||
                                       expectation.mechanism == Mechanism::kNondeterministic);
}

class ProofJudge {
 public:
  ProofJudge(const Scenario& scenario, std::span<const Expectation> expectations)
      : scenario_(scenario), expectations_(expectations) {}

  ScenarioResult Judge(const std::string& name, std::span<const Edit> edits) {
    const auto start = std::chrono::steady_clock::now();
    ScenarioResult result;
    result.name = name;
    result.file = scenario_.file;
    result.mesh = scenario_.mesh;
    result.scenario = &scenario_;
    const ProofRun run = Prove(scenario_, edits);
    result.conditions = run.conditions;
    for (const auto& [param, proof] : run.proofs) Add(run, proof, result);
    AddNorm(run, result);
    result.elapsed_us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

 private:
  void AddNorm(const ProofRun& run, ScenarioResult& result) {
    const auto expected = std::find_if(
        expectations_.begin(), expectations_.end(), [](const Expectation& expectation) {
          return expectation.param.empty() && expectation.mechanism == Mechanism::kNormMiscount;
        });
    const std::optional<Verdict> verdict = NormVerdict(NormCheck(), run.norm_miscounts);
    if (!verdict && expected != expectations_.end())
      Fail(result, absl::StrCat("expected ", Describe(*expected),
                                ", proved that every parameter counts once"));
    if (!verdict) return;
    Finding finding{.verdict = *verdict, .proof = {}, .cure = {}};
    if (expected == expectations_.end()) {
      Fail(result, absl::StrCat("the gradient norm: not proved right: ", Describe(*verdict)));
    } else {
      finding.expectation = &*expected;
    }
    result.findings.push_back(std::move(finding));
  }

  void Add(const ProofRun& run, const Proof& proof, ScenarioResult& result) {
    Finding finding{.verdict = VerdictOf(run, proof), .proof = proof, .cure = {}};
    bool expected = false;
    for (const Expectation& expectation : expectations_) {
      if (OfARunThatEnds(expectation)) continue;
      // Of the run itself: it does not end, and nothing is proved.
      const bool names = expectation.param.empty()
                             ? !run.refused.empty() || proof.outcome == Outcome::kNoStatement
                             : GlobMatches(expectation.param, proof.param);
      if (!names) continue;
      expected = true;
      if (ProofMeets(expectation, proof)) {
        finding.expectation = &expectation;
      } else {
        Fail(result, absl::StrCat(proof.param, ": expected ", Describe(expectation), ", proved ",
                                  Describe(finding.verdict)));
      }
    }
    if (proof.outcome == Outcome::kRight) {
      ++result.params_right;
      return;
    }
    if (!expected)
      Fail(result, absl::StrCat(proof.param, ": not proved right: ", Describe(finding.verdict)));
    result.findings.push_back(std::move(finding));
  }

  static void Fail(ScenarioResult& result, std::string why) {
    result.outcome = RunOutcome::kFail;
    result.failures.push_back(std::move(why));
  }

  const Scenario& scenario_;
  std::span<const Expectation> expectations_;
};

}  // namespace

std::vector<ScenarioResult> ProveScenario(const Scenario& scenario) {
  std::vector<ScenarioResult> results;
  if (const std::string reason = NothingToFind(scenario); !reason.empty())
    return {SkippedResult(scenario, scenario.name, reason)};
  results.push_back(
      ProofJudge(scenario, scenario.expectations).Judge(scenario.name, scenario.defects));
  if (scenario.harmless || (scenario.defects.empty() && scenario.cures.empty())) return results;
  std::vector<Edit> cured;
  if (!scenario.cures.empty()) {
    cured = scenario.defects;
    cured.insert(cured.end(), scenario.cures.begin(), scenario.cures.end());
  }
  results.push_back(ProofJudge(scenario, {}).Judge(scenario.name + "@cured", cured));
  return results;
}

}  // namespace sumonce

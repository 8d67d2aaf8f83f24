#include "verify/expectations.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"

namespace sumonce {
namespace {

bool MeetsMechanism(const Expectation& expectation, const Verdict& verdict) {
  if (expectation.mechanism == Mechanism::kNone || expectation.mechanism == verdict.mechanism)
    return true;
  return std::find(verdict.consequences.begin(), verdict.consequences.end(),
                   expectation.mechanism) != verdict.consequences.end();
}

// The factor by either name: equal sizes of axes give one number two names, of which the proof
// knows the right one.
bool MeetsCoefficient(const Expectation& expectation, const Verdict& verdict, const Proof* proof) {
  if (expectation.coefficient.empty() || expectation.coefficient == verdict.coefficient)
    return true;
  return proof && proof->factor && verdict.factor == proof->factor &&
         expectation.coefficient == proof->coefficient;
}

bool Meets(const Expectation& expectation, const Verdict& verdict, const Proof* proof) {
  if (expectation.outcome != verdict.outcome || !MeetsMechanism(expectation, verdict)) return false;
  const bool own =
      expectation.mechanism == verdict.mechanism || expectation.mechanism == Mechanism::kNone;
  // A consequence has no axis, factor or step of its own: naming one for it cannot be met.
  if (!own && (expectation.axis || !expectation.coefficient.empty() || expectation.step))
    return false;
  if (own && expectation.axis && expectation.axis != verdict.axis) return false;
  if (own && !MeetsCoefficient(expectation, verdict, proof)) return false;
  if (own && expectation.step && *expectation.step != verdict.step) return false;
  return expectation.operation.empty() || GlobMatches(expectation.operation, verdict.operation);
}

class Matcher {
 public:
  Matcher(std::span<const Expectation> expectations, const RunOnce& run)
      : expectations_(expectations), run_(run) {}

  Matched Match() {
    if (run_.run_verdict) {
      Check("", *run_.run_verdict, "the run");
    } else {
      for (const auto& [param, verdict] : run_.verdicts) Check(param, verdict, param);
      if (run_.norm_verdict) Check("", *run_.norm_verdict, "the gradient norm");
      if (run_.rerun_verdict) Check(kRerun, *run_.rerun_verdict, "the run, repeated");
    }
    for (const Expectation& expectation : expectations_) {
      if (!seen_.contains(&expectation))
        matched_.failures.push_back(absl::StrCat("not found: ", Describe(expectation)));
    }
    return std::move(matched_);
  }

 private:
  // All expectations that name the parameter; a consequence may stand beside the mechanism that it
  // follows from.
  std::vector<const Expectation*> Naming(const std::string& param) const {
    std::vector<const Expectation*> naming;
    for (const Expectation& expectation : expectations_) {
      const bool rerun = expectation.mechanism == Mechanism::kNondeterministic;
      const bool names = param.empty() || param == kRerun
                             ? expectation.param.empty() && rerun == (param == kRerun)
                             : !expectation.param.empty() && GlobMatches(expectation.param, param);
      if (names) naming.push_back(&expectation);
    }
    return naming;
  }

  void Check(const std::string& param, const Verdict& verdict, const std::string& what) {
    const std::vector<const Expectation*> naming = Naming(param);
    if (naming.empty()) {
      if (verdict.outcome != Outcome::kRight) {
        matched_.failures.push_back(
            absl::StrCat(what, ": expected RIGHT, found ", Describe(verdict)));
      }
      return;
    }
    for (const Expectation* expectation : naming) {
      seen_.insert(expectation);
      const auto proof = run_.proof.proofs.find(param);
      if (Meets(*expectation, verdict,
                proof == run_.proof.proofs.end() ? nullptr : &proof->second)) {
        matched_.met[param] = expectation;
      } else {
        matched_.failures.push_back(absl::StrCat(what, ": expected ", Describe(*expectation),
                                                 ", found ", Describe(verdict)));
      }
    }
  }

  std::span<const Expectation> expectations_;
  const RunOnce& run_;
  std::set<const Expectation*> seen_;
  Matched matched_;
};

}  // namespace

Matched MatchExpectations(std::span<const Expectation> expectations, const RunOnce& run) {
  return Matcher(expectations, run).Match();
}

std::string NothingToFind(const Scenario& scenario) {
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  for (const Expectation& expectation : scenario.expectations) {
    if (!expectation.axis || mesh.size(*expectation.axis) > 1) continue;
    const std::string axis(Name(*expectation.axis));
    return absl::StrCat(axis, " is 1: there is nothing to sum over it, and ", Describe(expectation),
                        " cannot be found");
  }
  return "";
}

std::string Describe(const Expectation& expectation) {
  std::string text = absl::StrCat(ToAbsl(Name(expectation.outcome)));
  if (expectation.mechanism != Mechanism::kNone)
    text = absl::StrCat(ToAbsl(Name(expectation.mechanism)));
  if (expectation.axis) absl::StrAppend(&text, " over ", ToAbsl(Name(*expectation.axis)));
  if (!expectation.coefficient.empty())
    absl::StrAppend(&text, ", coefficient ", expectation.coefficient);
  if (expectation.step) absl::StrAppend(&text, ", in step ", *expectation.step);
  if (!expectation.operation.empty()) absl::StrAppend(&text, ", at ", expectation.operation);
  if (!expectation.param.empty()) absl::StrAppend(&text, " of ", expectation.param);
  return text;
}

std::string Describe(const Verdict& verdict) {
  std::string text = absl::StrCat(ToAbsl(Name(verdict.outcome)));
  if (verdict.mechanism != Mechanism::kNone)
    absl::StrAppend(&text, " ", ToAbsl(Name(verdict.mechanism)));
  if (verdict.axis) absl::StrAppend(&text, " over ", ToAbsl(Name(*verdict.axis)));
  if (!verdict.coefficient.empty()) absl::StrAppend(&text, ", coefficient ", verdict.coefficient);
  if (!verdict.ranks.empty()) absl::StrAppend(&text, ", on ", verdict.ranks);
  if (!verdict.operation.empty()) absl::StrAppend(&text, ", at ", verdict.operation);
  if (verdict.outcome != Outcome::kRight) absl::StrAppend(&text, ", in step ", verdict.step);
  return text;
}

}  // namespace sumonce

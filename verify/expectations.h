// What a scenario says must be found, against what was found. A trained parameter that no
// expectation names must be right.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "verify/run_once.h"

namespace sumonce {

struct Matched {
  std::vector<std::string> failures;  // one sentence each
  // Parameter ("" for the run, kRerun for runs that differ) -> the expectation it meets.
  std::map<std::string, const Expectation*> met;
};
inline constexpr char kRerun[] = "(runs)";

// `expectations`: the scenario's, or none for a run that must be right everywhere.
Matched MatchExpectations(std::span<const Expectation> expectations, const RunOnce& run);

// Why an expectation cannot be met on the scenario's mesh: a fault that is a sum over an axis has
// nothing to show where that axis has one rank. "": all can.
std::string NothingToFind(const Scenario& scenario);

// "expected MISSING_SUM over tp": an expectation, or a verdict, in words.
std::string Describe(const Expectation& expectation);
std::string Describe(const Verdict& verdict);

}  // namespace sumonce

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
  std::map<std::string, const Expectation*>
      met;  // parameter ("" for the run) -> the expectation it meets
};

// `expectations`: the scenario's, or none for a run that must be right everywhere.
Matched MatchExpectations(std::span<const Expectation> expectations, const RunOnce& run);

// "expected MISSING_SUM over tp": an expectation, or a verdict, in words.
std::string Describe(const Expectation& expectation);
std::string Describe(const Verdict& verdict);

}  // namespace sumonce

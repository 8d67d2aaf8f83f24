// Whether a run's data could have shown a fault at all: an edit that acts on a gradient which is
// exactly zero (masked tokens, a factor that starts at zero) leaves right numbers and proves
// nothing.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>

#include "sim/simulator.h"
#include "verify/tolerance.h"
#include "verify/verdict.h"

namespace sumonce {

// The verdicts, by numbers alone, of one step of the same scenario with the same edits on data that
// hide nothing: loss on every token, and a random number for every start weight that is zero. Empty
// if that run cannot be made.
std::map<std::string, Verdict> VerdictsOnTellingData(const Scenario& scenario,
                                                     std::span<const Edit> edits,
                                                     const Weights& start,
                                                     const std::set<std::string>& params,
                                                     Tolerance tolerance);

}  // namespace sumonce

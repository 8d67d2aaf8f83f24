// Cures that a mechanism suggests, most specific first. A candidate is proposed only if the proof
// of the edited scenario says that the parameter is right; the runner then tries it in numbers.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/scenario.h"
#include "verify/grad_norm.h"
#include "verify/verdict.h"

namespace sumonce {

// The first candidate that the proof accepts for this verdict's parameter, or none: then no mark,
// rule or communication that we know of cures it. Of UPSTREAM the cure may have several parts:
// another fault can stand behind what arrives wrong. `edits`: what the run had (its defects).
std::optional<CureTrial> ProposeCure(const Scenario& scenario, std::span<const Edit> edits,
                                     const Verdict& verdict);

// Whether the proof accepts a cure that was proposed for another verdict.
bool Cures(const Scenario& scenario, std::span<const Edit> edits, const CureTrial& cure,
           const Verdict& verdict);

// For a run that ended in a mismatch or a deadlock: where ranks disagree on a parameter's marks,
// the same mark on all.
std::optional<CureTrial> ProposeRunCure(const Scenario& scenario, std::span<const Edit> edits);

// Marks as the layouts and the sums ask for, on every parameter that the norm does not count once.
CureTrial NormCure(std::span<const Miscounted> miscounted);

}  // namespace sumonce

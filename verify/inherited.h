// Parameters whose gradient has another class than a sound program's because an operation above
// them goes wrong: consequences of that one fault, not faults of their own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/scenario.h"
#include "verify/prove.h"
#include "verify/verdict.h"

namespace sumonce {

// Whether the parameter's gradient comes through `operation`, has another state there than `clean`
// (the proof without edits) says, and the finalizer of `run` (the proof with `edits`) would be
// right on the sound one.
bool InheritsFault(const Scenario& scenario, std::span<const Edit> edits, const ProofRun& run,
                   const ProofRun& clean, const std::string& param, const std::string& operation);

// One line: what the gradient is, and what it would be.
std::string InheritedText(const ProofRun& run, const ProofRun& clean, const Verdict& verdict);

}  // namespace sumonce

// The same scenario and seed once more: whatever the schedule, the bits must be the same
// (docs/DETERMINISM.md). Where they are not, NONDETERMINISTIC: which call or operation gives other
// bits, and on which parameters that is seen.
#pragma once

#include <optional>
#include <span>

#include "verify/run_once.h"

namespace sumonce {

// Whether one of its defects takes a sum out of its order.
bool IsAboutOrder(const Scenario& scenario);

// How often a scenario is run again at most: as asked, and where it is about sums in no order a few
// times, or on threads many.
int RerunsOf(const Scenario& scenario, const SimOptions& options, int asked);

// `first` ended. Runs the scenario `reruns` times more, each under the next schedule (threads and
// processes have an order of their own), until one differs; the verdict is of the run itself. None:
// all were the same.
std::optional<Verdict> CompareReruns(const Scenario& scenario, std::span<const Edit> edits,
                                     const RunOnce& first, const SimOptions& options, int reruns);

}  // namespace sumonce

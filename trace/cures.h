// Cures of a traced parameter: other marks than it had, or another action of the finalizer. Each is
// tried on the states before it is proposed.
#pragma once

#include <optional>

#include "trace/prover.h"
#include "verify/verdict.h"

namespace sumonce::trace {

// `param`: with the marks as they stood after the step. Nothing: no mark and no sum over the axis
// makes it right, or it is.
std::optional<CureTrial> ProposeCure(const Prover& prover, const TracedGradient& gradient,
                                     const ParamInfo& param);

// For parameters below a mixed use by rows, which no mark cures: the sums that are missing where
// parts are joined. `trial` ran with SumMixedParts and found them right.
CureTrial CureOfMixedUse(const Prover& trial);

}  // namespace sumonce::trace

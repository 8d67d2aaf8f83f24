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

}  // namespace sumonce::trace

// A scenario's first step as traces (docs/TRACE.md): the same layers, defects and finalizer rules
// as those that run and that are proved, recorded rank by rank. `prove --trace` of them and `prove`
// of the scenario are two provers of one program.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "sim/scenario.h"
#include "trace/trace_set.h"

namespace sumonce::trace {

// Why a scenario's step cannot be told by a trace of one microbatch: faults of the transport, of
// another microbatch or step. Empty: it can.
std::string WhyNotRecorded(const Scenario& scenario);

// What is recorded: the scenario along tp alone, its sharded extents multiples of 8, so that at
// size 4 a rank has 2 of each. The proof holds for every extent; this one is the traces'.
Scenario AsRecorded(const Scenario& scenario);

// Both ranks at tp 2 and rank 0 at tp 4 with these edits, and the unsharded step without them.
// `recorded` is as AsRecorded gives it. Unimplemented: an operation or a map without an aten form.
absl::StatusOr<TraceSet> RecordStep(const Scenario& recorded, std::span<const Edit> edits);

}  // namespace sumonce::trace

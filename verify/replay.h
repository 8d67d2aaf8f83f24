// The finalizer's reductions of one parameter, one by one along the communication log: what the
// ranks put in, and whether each rank got what the logged map makes of it. Where one did not, what
// a rank must have sent instead. Numbers and log only: neither the reference nor the proof is
// asked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/diagnose.h"

namespace sumonce {

struct ReductionFault {
  // LOST_CONTRIBUTION: a term absent, or there more than once; STALE: one of an earlier step;
  // WRONG_SHARD: elements in each other's places; WRONG_GROUP: reduced over other ranks; UPSTREAM:
  // none of these, a bit flipped on the way among them.
  Mechanism mechanism = Mechanism::kUpstream;
  std::string operation;              // "finalizer data_parallel/data_parallel_sum"
  Axis axis = Axis::kTp;              // of its group, the first
  std::vector<std::string> evidence;  // a sentence for each group that got something else
};

// The first reduction of this step whose results are not what it makes of its inputs; none if all
// are.
std::optional<ReductionFault> FindReductionFault(const Mesh& mesh, const ComparedStep& step,
                                                 const std::string& param,
                                                 const Tolerance& tolerance);

}  // namespace sumonce

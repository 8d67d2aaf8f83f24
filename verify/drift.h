// Where copies of a parameter part: the stage of a step behind which the ranks that hold it no
// longer hold the same bits.
#pragma once

#include <span>
#include <string>

#include "sim/record.h"
#include "verify/prove.h"

namespace sumonce {

struct Parting {
  int step = 0;
  std::string operation;  // the use of the parameter, a call of the finalizer, or "optimizer"
  std::string text;       // "its copies part in step 1 at ...: ..."
};

// In this step of all ranks: the copies of `param` are equal before it and differ behind it.
Parting FindParting(const ProofRun& proof, const Param& param,
                    std::span<const StepRecord* const> ranks);

}  // namespace sumonce

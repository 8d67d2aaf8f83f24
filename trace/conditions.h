// What a proof of traces rests on besides the traces: printed with it.
#pragma once

#include <string>
#include <vector>

#include "trace/prover.h"

namespace sumonce::trace {

// After prover.Run(). One sentence each.
std::vector<std::string> ConditionsOf(const Alignment& traces, Prover& prover);

}  // namespace sumonce::trace

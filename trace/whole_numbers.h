// Numbers that exist only in the sharded program. A factor 1/min(n, 2) is the same at sizes 2 and
// 4, so that comparing those two cannot tell it from a 1/2 of the model; the unsharded program does
// (docs/TRACE.md "Four traces").
#pragma once

#include <set>
#include <string>

#include "trace/align.h"

namespace sumonce::trace {

// Operations of the traces with a number that the unsharded program does not have as often: the
// numbers that enter arithmetic, by the name of the operation and compared as multisets, each
// divided by the power of n that it goes with. Empty without an unsharded trace.
std::set<int> NumbersBeyondWhole(const Alignment& traces);

// A number that the unsharded program has more often than these, with its operation there: the
// reference is another multiple than what is proved. Empty: there is none.
std::string NumberOfWholeAlone(const Alignment& traces);

}  // namespace sumonce::trace

// Numbers that exist only in the sharded program. A factor 1/min(n, 2) is the same at sizes 2 and
// 4, so that comparing those two cannot tell it from a 1/2 of the model; the unsharded program does
// (docs/TRACE.md "Four traces").
#pragma once

#include <set>

#include "trace/align.h"

namespace sumonce::trace {

// Operations of the traces with a number that the unsharded program does not have as often: the
// numbers that enter arithmetic, compared as multisets, each divided by the power of n that it goes
// with. Empty without an unsharded trace.
std::set<int> NumbersBeyondWhole(const Alignment& traces);

}  // namespace sumonce::trace

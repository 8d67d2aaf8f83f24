// The reduction of one range of elements over ranks, in ascending rank order: the order that makes
// equal inputs give equal bits, on every executor and by whichever rank it is done.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace sumonce {

// out[o][i] = op over ranks r of in[r][i], for i < count and every o. Each output is an input or
// overlaps none.
//
// SUM is ((x0 + x1) + x2) + ..., in the dtype itself; in float32 for bfloat16, rounded once at the
// end; modulo 2^bits for integers. AVG divides that sum by the number of ranks, before the rounding
// of bfloat16. MAX keeps the first of equals, and a NaN wins: what is not finite must not vanish.
// float64, float32, bfloat16; int64, int32 without AVG.
void ReduceInRankOrder(DType dtype, ReduceOp op, const std::vector<const void*>& in, int64_t count,
                       const std::vector<void*>& out);

}  // namespace sumonce

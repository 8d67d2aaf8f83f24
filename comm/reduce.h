// The reduction of one range of elements over ranks, in ascending rank order: the order that makes
// equal inputs give equal bits, on every executor and by whichever rank it is done.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace sumonce {

// out[o][i] = op over ranks r of in[r][i], for i < count and every o. Each output is an input or
// overlaps none. One pass: each element is read once per rank and written once per output.
//
// SUM is ((x0 + x1) + x2) + ..., in the dtype itself; in float32 for bfloat16, rounded once at the
// end; modulo 2^bits for integers. AVG divides that sum by the number of ranks, before the rounding
// of bfloat16. MAX keeps the first of equals, and a NaN wins: what is not finite must not vanish.
// float64, float32, bfloat16; int64, int32 without AVG.
void ReduceInRankOrder(DType dtype, ReduceOp op, std::span<const void* const> in, int64_t count,
                       std::span<void* const> out);

// The implementations; all give the same bits (only which of several NaNs comes out is open).
enum class ReduceKernel : uint8_t { kBaseline, kAvx2, kAvx512 };
std::string_view Name(ReduceKernel kernel);  // "baseline", "avx2", "avx512"
// Whether this build and this CPU have it.
bool HasReduceKernel(ReduceKernel kernel);
// The one that this CPU gets.
ReduceKernel BestReduceKernel();
// Overrides the choice for the process (tests, bench); asking for one that the CPU lacks is a
// failed check.
void ForceReduceKernel(ReduceKernel kernel);

}  // namespace sumonce

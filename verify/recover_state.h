// Recovers, from numbers alone, the state in which the ranks' arrays of one tensor stand to the
// reference's: which layouts along each axis, and which factor (docs/THEORY.md "Recovery").
#pragma once

#include <span>
#include <string>
#include <vector>

#include "spmd/param.h"
#include "spmd/whole.h"
#include "verify/tolerance.h"

namespace sumonce {

struct RecoveredState {
  bool found = false;
  State state;  // the first that fits, in the order of preference: as the target, complete, partial
  // All that fit: equal terms are a complete gradient and a partial one, and with two axes of one
  // size their factors look alike ("tp" and "dp", 1 and "tp/dp").
  std::vector<State> all;
  bool zero = false;        // every array is zero: nothing can be seen
  double diff_abs_max = 0;  // of the first that fits
  double allowed = 0;
};

// Tries every layout along every axis (as the target's, equal, partial, mixed; the target's own
// first) with every factor that is a monomial of small exponents, or else a small rational.
// `reference`: the whole tensor that lambda multiplies.
RecoveredState RecoverState(const ShardMap& shards, const Mesh& mesh, std::span<const Tensor> ranks,
                            const Tensor& reference, const Tolerance& tolerance);

}  // namespace sumonce

// The inverse of sharding: from the ranks' arrays and the state that they are in, the whole tensor
// (docs/THEORY.md "States"). What a state claims is checked here, on numbers.
#pragma once

#include <span>

#include "spmd/state.h"
#include "spmd/tensor.h"

namespace sumonce {

struct Joined {
  Tensor whole;       // lambda*x, assembled; empty if the arrays cannot be joined that way (shapes)
  double spread = 0;  // the largest difference between copies that the state calls equal
};

// E axes: the copies are compared and the first is taken; P axes: summed in rank order; S axes:
// joined, the innermost cut first. `ranks`: one array per world rank. Mixed or lost states give an
// empty result. Scale is not divided out.
Joined Join(const State& state, const Mesh& mesh, std::span<const Tensor> ranks);

}  // namespace sumonce

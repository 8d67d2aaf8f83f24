// What a local operation does to states: one rule forward, one backward, for every operation
// (docs/THEORY.md "Local operations"; soundness there).
#pragma once

#include <span>

#include "spmd/operation.h"
#include "spmd/state.h"

namespace sumonce {

struct OperandState {
  const Dims* dims = nullptr;
  const State* value = nullptr;
};

// The result's state. `num_axes`: how many atomic axes there are. `operation`: recorded in new
// faults.
State LocalForward(const Declaration& declaration, std::span<const OperandState> operands,
                   int num_axes, int operation);

// The state of operand i's gradient, given the result's value and its gradient.
State LocalBackward(const Declaration& declaration, std::span<const OperandState> operands,
                    const State& result, const State& result_grad, size_t i, int num_axes,
                    int operation);

}  // namespace sumonce

// One application of an operation on arrays, as a tape would do it, for tests of its kernels.
#pragma once

#include <vector>

#include "base/status.h"
#include "spmd/operation.h"

namespace sumonce::testing {

inline Tensor RunForward(const Operation& operation, const std::vector<Tensor>& in) {
  std::vector<Dims> dims;
  for (const Tensor& operand : in) dims.push_back(operand.dims());
  absl::StatusOr<Declaration> declaration = operation.Declare(dims);
  SUMONCE_CHECK(declaration.ok()) << declaration.status().message();
  Tensor out(declaration->result);
  operation.Forward(in, out);
  return out;
}

// The gradients of all operands.
inline std::vector<Tensor> RunBackward(const Operation& operation, const std::vector<Tensor>& in,
                                       const Tensor& grad_out) {
  std::vector<Tensor> grad_in;
  for (const Tensor& operand : in) grad_in.emplace_back(operand.dims());
  operation.Backward(in, RunForward(operation, in), grad_out, grad_in);
  return grad_in;
}

}  // namespace sumonce::testing

// a + b of equal dimensions: residual streams, base and adapter.
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

// Both operands and the result have the same dimensions, else InvalidArgument. Declared as an
// addition.
class AddOperation : public Operation {
 public:
  std::string_view name() const override { return "Add"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value Add(Tape& tape, Value a, Value b);

}  // namespace sumonce

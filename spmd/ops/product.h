// y = x m, element by element: a dropout's mask, drawn by global index.
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

// x and m of the same dimensions, else InvalidArgument; linear in both, every dimension free.
class ProductOperation : public Operation {
 public:
  std::string_view name() const override { return "Product"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value Product(Tape& tape, Value x, Value m);

}  // namespace sumonce

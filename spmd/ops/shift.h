// y = x - m, m the same for all of the last dimension: logits minus their maximum.
//   x: [..., v], m: [...] -> y: [..., v].
// Every dimension is free. Affine, not linear, in both: a partial x or a scaled m has no meaning
// here. With v cut, a gradient for m is partial over v; the loss holds m constant and asks for
// none.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

class ShiftOperation final : public Operation {
 public:
  std::string_view name() const override { return "Shift"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value Shift(Tape& tape, Value x, Value m);

}  // namespace sumonce

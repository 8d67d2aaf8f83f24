// y = x + bias, the same bias for every token.
//   x: [rest..., out...], bias: [out...] -> y: as x. Every dimension is free; affine, so linear in
//   neither: a bias added to a partial x would be counted once per rank, and is refused. With rest
//   cut (sequence parallelism) the bias's gradient is partial.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

class AddBiasOperation final : public Operation {
 public:
  std::string_view name() const override { return "AddBias"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value AddBias(Tape& tape, Value x, Value bias);

}  // namespace sumonce

// y = a - b, of equal dimensions: log sum minus target logit.
// An addition: a complete operand beside a partial one would be counted once per rank.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

class SubtractOperation final : public Operation {
 public:
  std::string_view name() const override { return "Subtract"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value Subtract(Tape& tape, Value a, Value b);

}  // namespace sumonce

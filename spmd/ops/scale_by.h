// y = factor * x, a constant number: lora_alpha / r. Unlike Tape::Multiply, the reference
// multiplies by the same number, so the state's scale does not change.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

// x: any dimensions, all free; result as x. Linear.
class ScaleByOperation final : public Operation {
 public:
  explicit ScaleByOperation(double factor) : factor_(factor) {}
  std::string_view name() const override { return "ScaleBy"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  double factor() const { return factor_; }

 private:
  double factor_;
};

Value ScaleBy(Tape& tape, Value x, double factor);

}  // namespace sumonce

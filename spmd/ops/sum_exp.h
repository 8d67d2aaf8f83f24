// y = sum_v e^x over the last dimension; the caller shifts x by its maximum first.
//   x: [..., v] -> y: [...].
// A plain sum of terms over the last dimension, though the terms are not linear: with v cut the
// result is partial and wants an all-reduce (Megatron-Core, VocabParallelCrossEntropy).
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

class SumExpOperation final : public Operation {
 public:
  std::string_view name() const override { return "SumExp"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value SumExp(Tape& tape, Value x);

}  // namespace sumonce

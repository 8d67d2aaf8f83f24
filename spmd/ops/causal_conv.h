// Depthwise causal convolution over the sequence, without bias and activation:
//   y[t, b, c] = sum_j weight[c, j] x[t - (K-1) + j, b, c],  x before the first token = 0,
// so tap K-1 meets the current token (torch.nn.Conv1d with groups = channels, padded by K-1).
//   x: [s, b, c], weight: [c, t] -> y: [s, b, c]
// where c is any dimension, the same with the same parts and packing in both. Linear in both; mixes
// s and t: a sequence cut over ranks would need the K-1 tokens before it.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

class CausalConvOperation final : public Operation {
 public:
  std::string_view name() const override { return "CausalConv"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value CausalConv(Tape& tape, Value x, Value weight);

}  // namespace sumonce

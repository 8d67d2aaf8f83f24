// Depthwise causal convolution over the sequence, without bias and activation:
//   y[t, b, c] = sum_j weight[c, j] x[t - (K-1) + j, b, c],  x before the sequence's first token =
//   0,
// so tap K-1 meets the current token (torch.nn.Conv1d with groups = channels, padded by K-1).
//   x: [s, b, c], weight: [c, t] -> y: [s, b, c]
// where c is any dimension, the same with the same parts and packing in both. A third operand,
// [K-1, b, c] with s for its first, holds the tokens before the first one (a carried state) instead
// of zeros. Linear in weight, and without carried tokens in x; mixes s and t: a sequence cut over
// ranks would need the K-1 tokens before it.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/sequences.h"
#include "spmd/tape.h"

namespace sumonce {

class CausalConvOperation final : public Operation {
 public:
  explicit CausalConvOperation(SequenceStarts starts = {}) : starts_(std::move(starts)) {}
  std::string_view name() const override { return "CausalConv"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const SequenceStarts& starts() const { return starts_; }

 private:
  SequenceStarts starts_;
};

// `before`: the carried tokens, if valid.
Value CausalConv(Tape& tape, Value x, Value weight, SequenceStarts starts = {}, Value before = {});

}  // namespace sumonce

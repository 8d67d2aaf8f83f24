// GatedDeltaNet's log decay, one number per token and value head (flash-linear-attention,
// naive_gdn_gate):
//   g = -exp(A_log) softplus(a + dt_bias) <= 0, softplus the identity above 20.
//   a: [s, b, k, j], A_log: [k, j], dt_bias: [k, j] -> g: [s, b, k, j]
// Everything is free, nothing linear. Gradients: a: -grad_g exp(A_log) softplus'(a + dt_bias);
// dt_bias: that summed over tokens; A_log: the sum of grad_g g.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

class GdnDecayOperation final : public Operation {
 public:
  std::string_view name() const override { return "GdnDecay"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value GdnDecay(Tape& tape, Value a, Value A_log, Value dt_bias);

}  // namespace sumonce

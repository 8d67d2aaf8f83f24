// Two parts of a head side by side; the second may be one for all heads, as the rotary key of
// multi-latent attention is.
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

// a: [..., d], b: [..., e] with d and e both the head's entries; b may lack some of a's other
// dimensions and is then the same along them. Result: a's dimensions with d + e entries, a's first.
// InvalidArgument otherwise. Mixes d; the other dimensions are free.
class JoinHeadOperation : public Operation {
 public:
  std::string_view name() const override { return "JoinHead"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value JoinHead(Tape& tape, Value a, Value b);

}  // namespace sumonce

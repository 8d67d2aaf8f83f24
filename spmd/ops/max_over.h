// y = max_v x over the last dimension.
//   x: [..., v] -> y: [...].
// With v cut, each rank holds the maximum of its slice: declared as maxima, whose maximum over the
// ranks (StopMax) is the whole's and which nothing else may read.
// The gradient goes to the first of the largest entries: a subgradient where there are several. The
// loss holds the maximum constant and asks for none.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

class MaxOverOperation final : public Operation {
 public:
  std::string_view name() const override { return "MaxOver"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value MaxOver(Tape& tape, Value x);

}  // namespace sumonce

// y = x W: the contraction over the dimensions that x and W share, by the fixed-order matrix
// product (spec/gdn-lora-math.md, notation).
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

// x: [rest..., shared...]; weight: [out..., shared...], or [shared..., out...] (an embedding table
// read by one-hot rows); result: [rest..., out...]. The shared dimensions are at least one, in the
// same order and with equal units, parts and packing: a shard of one against the whole of the other
// is InvalidArgument. Linear in both, sums the shared dimensions.
class LinearOperation : public Operation {
 public:
  std::string_view name() const override { return "Linear"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value Linear(Tape& tape, Value x, Value weight);

}  // namespace sumonce

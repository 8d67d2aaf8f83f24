// o = c * sigmoid(gate), entry by entry (spec/gdn-lora-math.md section 7): the output gate of
// attention; or with one gate for all entries of the last dimension: a shared expert's.
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

// c and the result have the same dimensions, gate as well or all but the last of them, else
// InvalidArgument. Linear in c; every
// dimension is free.
class SigmoidGateOperation : public Operation {
 public:
  std::string_view name() const override { return "SigmoidGate"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value SigmoidGate(Tape& tape, Value c, Value gate);

}  // namespace sumonce

// y = silu(gate) * up of a fused dimension [gate | up] (spec/gdn-lora-math.md section 6).
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

// x: [..., dim = units x (w, w), ...] in either packing, gate first; result: [..., dim = units x w,
// ...]. InvalidArgument unless x has dim with two equal parts. Dim is free; nothing is linear.
class SwigluOperation : public Operation {
 public:
  explicit SwigluOperation(Dim dim) : dim_(dim) {}
  std::string_view name() const override { return "Swiglu"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;

 private:
  Dim dim_;
};

Value Swiglu(Tape& tape, Value x, Dim dim = Dim::kFfn);

}  // namespace sumonce

// The entries of one unit become dimensions of their own: a reshape.
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

struct UnfoldOptions {
  Dim dim = Dim::kGroup;
  Dims inner;  // of one unit, outermost first; their product is the unit's width
};

// x: [..., dim = units x (w), ...]; result: [..., dim = units, inner..., ...]. InvalidArgument if
// dim is absent or has several parts, if w is not the product of inner, or if x has one of inner
// already. Linear; every dimension is free.
class UnfoldOperation : public Operation {
 public:
  explicit UnfoldOperation(UnfoldOptions options) : options_(std::move(options)) {}
  std::string_view name() const override { return "Unfold"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;

 private:
  UnfoldOptions options_;
};

Value Unfold(Tape& tape, Value x, UnfoldOptions options);

}  // namespace sumonce

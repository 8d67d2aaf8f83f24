// Two values side by side along one dimension; the second may be one for several of the first, as
// the rotary key of multi-latent attention is for all heads.
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

// a: [..., dim, ...], b: as a but for the extent of dim; of the dimensions in front of dim b may
// lack some and is then the same along them. Result: a's dimensions with the entries of both, a's
// first. InvalidArgument otherwise, and if dim has parts. Mixes dim; the other dimensions are free.
class ConcatOperation : public Operation {
 public:
  explicit ConcatOperation(Dim dim) : dim_(dim) {}
  std::string_view name() const override { return "Concat"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  Dim dim() const { return dim_; }

 private:
  Dim dim_;
};

Value Concat(Tape& tape, Value a, Value b, Dim dim);

}  // namespace sumonce

// The entries of a plain dimension read as units of a fused one: a gathered projection, whose
// shards ended anywhere, as its groups again.
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

struct RegroupOptions {
  Dim from = Dim::kOut;
  DimExtent to;  // as many entries as `from` has
};

// x: [..., from, ...]; the result has `to` in its place, over the same memory. InvalidArgument if
// from is absent, has parts or another extent, or if x has to.dim besides. Linear; mixes from,
// whose shards are no whole units.
class RegroupOperation : public Operation {
 public:
  explicit RegroupOperation(RegroupOptions options) : options_(std::move(options)) {}
  std::string_view name() const override { return "Regroup"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;

 private:
  RegroupOptions options_;
};

Value Regroup(Tape& tape, Value x, RegroupOptions options);

}  // namespace sumonce

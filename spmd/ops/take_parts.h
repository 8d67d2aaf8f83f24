// Some adjacent parts of every unit of a fused dimension: gate and up, q heads, k, v.
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

struct TakePartsOptions {
  Dim dim = Dim::kGroup;
  int first = 0;
  int count = 1;
};

// x: [..., dim = units x (w_0, w_1, ...), ...]; the result has only parts first .. first+count-1 of
// dim, in the same packing. InvalidArgument if x lacks dim or dim lacks the parts. Linear; dim
// itself is free, for its units stay whole.
class TakePartsOperation : public Operation {
 public:
  explicit TakePartsOperation(TakePartsOptions options) : options_(options) {}
  std::string_view name() const override { return "TakeParts"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const TakePartsOptions& options() const { return options_; }

 private:
  TakePartsOptions options_;
};

Value TakeParts(Tape& tape, Value x, TakePartsOptions options);

// The inverse: every operand [..., dim = units x (some parts), ...], adjacent parts of `into` in
// its order and together all of them; the result has `into` in their place. InvalidArgument
// otherwise. A sum of the operands, each with zeros in the others' parts; every dimension is free.
class JoinPartsOperation : public Operation {
 public:
  // `into` may have any number of units.
  explicit JoinPartsOperation(DimExtent into) : into_(std::move(into)) {}
  std::string_view name() const override { return "JoinParts"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const DimExtent& into() const { return into_; }

 private:
  DimExtent into_;
};

Value JoinParts(Tape& tape, std::vector<Value> parts, DimExtent into);

}  // namespace sumonce

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

struct PlacePartsOptions {
  DimExtent into;  // the fused dimension, with the parts that it has on any number of units
  int first = 0;
};

// The transpose of TakeParts: x: [..., dim = units x (some parts), ...]; the result has all parts
// of `into`, x's at `first` and zeros in the others. InvalidArgument if x lacks into.dim or has
// other parts there. Linear; every dimension is free.
class PlacePartsOperation : public Operation {
 public:
  explicit PlacePartsOperation(PlacePartsOptions options) : options_(std::move(options)) {}
  std::string_view name() const override { return "PlaceParts"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const PlacePartsOptions& options() const { return options_; }

 private:
  TakePartsOptions TakenFrom(const Dims& x) const;

  PlacePartsOptions options_;
};

Value PlaceParts(Tape& tape, Value x, PlacePartsOptions options);

}  // namespace sumonce

// Some adjacent entries of one plain dimension, under a name of their own: the latent and the
// rotary key of a joint projection.
#pragma once

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

struct TakeRangeOptions {
  Dim dim = Dim::kLatent;
  int64_t first = 0;
  int64_t count = 1;
  Dim as = Dim::kLatent;  // what the dimension is called in the result
};

// x: [..., dim, ...]; the result has entries first .. first+count-1 of dim, in its place, as `as`.
// InvalidArgument if dim is absent, has parts, or lacks the entries, or if x has `as` besides.
// Linear; mixes dim, whose shards hold other entries.
class TakeRangeOperation : public Operation {
 public:
  explicit TakeRangeOperation(TakeRangeOptions options) : options_(options) {}
  std::string_view name() const override { return "TakeRange"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const TakeRangeOptions& options() const { return options_; }

 private:
  TakeRangeOptions options_;
};

Value TakeRange(Tape& tape, Value x, TakeRangeOptions options);

}  // namespace sumonce

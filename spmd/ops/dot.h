// y = sum of a * b over some dimensions, entry by entry over the others: the target logit (b
// one-hot over v), the masked and weighted sum of token losses (over s and b), an auxiliary loss
// (counts times probabilities).
//   a, b: equal dimensions -> those that are not summed; [] if all are.
// Linear in both; with a summed dimension cut the result is partial.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

struct DotOptions {
  DimSet over = 0;  // the summed dimensions, all present in a and b; not empty
};

class DotOperation final : public Operation {
 public:
  explicit DotOperation(const DotOptions& options) : options_(options) {}

  std::string_view name() const override { return "Dot"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;

 private:
  DotOptions options_;
};

Value Dot(Tape& tape, Value a, Value b, const DotOptions& options);

}  // namespace sumonce

// y = x / sqrt(sum_d x^2 + eps) over the entries of a head (Hugging Face transformers,
// modeling_qwen3_next.py l2norm).
//   x: [..., d] -> y: [..., d]. Mixes d, everything else is free.
// The gradient with y = x R is R (grad_y - y (y . grad_y)); at x = 0 that is grad_y / sqrt(eps).
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

struct L2NormOptions {
  double eps = 1e-6;  // added to the sum of squares, inside the root
};

class L2NormOperation final : public Operation {
 public:
  explicit L2NormOperation(const L2NormOptions& options) : options_(options) {}

  std::string_view name() const override { return "L2Norm"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const L2NormOptions& options() const { return options_; }

 private:
  double InverseRoot(const double* x, int64_t width) const;

  L2NormOptions options_;
};

Value L2Norm(Tape& tape, Value x, const L2NormOptions& options = {});

}  // namespace sumonce

// GatedDeltaNet's output norm, the norm before the gate (Hugging Face transformers,
// Qwen3NextRMSNormGated):
//   y = weight * o / sqrt(mean_d(o^2) + eps) * silu(z).
//   o: [..., d], z: as o, weight: [d] (one vector for all heads, never zero-centred) -> y: as o
// Linear in the weight; mixes d, everything else is free: with heads cut over ranks, the weight's
// gradient is partial.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

struct GatedNormOptions {
  double eps = 1e-6;  // added to the mean of squares, inside the root
};

class GatedNormOperation final : public Operation {
 public:
  explicit GatedNormOperation(const GatedNormOptions& options) : options_(options) {}

  std::string_view name() const override { return "GatedNorm"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const GatedNormOptions& options() const { return options_; }

 private:
  double InverseRoot(const double* o, int64_t width) const;

  GatedNormOptions options_;
};

Value GatedNorm(Tape& tape, Value o, Value z, Value weight, const GatedNormOptions& options = {});

}  // namespace sumonce

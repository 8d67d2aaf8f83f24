// RMSNorm (spec/gdn-lora-math.md section 4): y = n * w, n = x / sqrt(mean(x^2) + eps), the mean
// over the normalised dimensions and eps on the mean; zero-centred: y = n * (1 + w).
#pragma once

#include <vector>

#include "spmd/operation.h"
#include "spmd/tape.h"

namespace sumonce {

struct RmsNormOptions {
  std::vector<Dim> dims = {Dim::kHidden};  // {kHeadDim} for the norms of q and k
  double eps = 1e-6;
  bool zero_centered = false;
};

// x: [rest..., dims...]; weight: [dims...]; result as x. InvalidArgument if x does not end with the
// normalised dimensions or the weight's extents differ. Linear in the weight unless zero-centred;
// mixes the normalised dimensions.
class RmsNormOperation : public Operation {
 public:
  explicit RmsNormOperation(RmsNormOptions options) : options_(std::move(options)) {}
  std::string_view name() const override { return "RmsNorm"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const RmsNormOptions& options() const { return options_; }

 private:
  double ScaleOf(double weight) const { return options_.zero_centered ? 1 + weight : weight; }
  double InverseRms(const double* row, int64_t width) const;

  RmsNormOptions options_;
};

Value RmsNorm(Tape& tape, Value x, Value weight, RmsNormOptions options);

}  // namespace sumonce

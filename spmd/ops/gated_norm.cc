#include "spmd/ops/gated_norm.h"

#include <cmath>

#include "base/math.h"

namespace sumonce {

absl::StatusOr<Declaration> GatedNormOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 3);
  const Dims& o = operands[0];
  if (o.empty() || o.back().dim != Dim::kHeadDim) return ShapeError(name(), "o", o, "[..., d]");
  if (operands[1] != o)
    return ShapeError(name(), "z", operands[1], absl::StrCat(Describe(o), " as o"));
  if (operands[2] != LastOf(o, 1)) {
    return ShapeError(name(), "weight", operands[2],
                      absl::StrCat(Describe(LastOf(o, 1)), ", the entries of a head"));
  }
  return Declaration{.result = o, .linear = Linear(2), .mixes = SetOf(Dim::kHeadDim)};
}

double GatedNormOperation::InverseRoot(const double* o, int64_t width) const {
  double sum = 0.0;
  for (int64_t i = 0; i < width; ++i) sum += o[i] * o[i];
  return 1.0 / std::sqrt(sum / static_cast<double>(width) + options_.eps);
}

void GatedNormOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t width = in[2].count();
  const double* weight = in[2].data();
  for (int64_t row = 0; row < out.count(); row += width) {
    const double* o = in[0].data() + row;
    const double* z = in[1].data() + row;
    const double inverse_root = InverseRoot(o, width);
    for (int64_t i = 0; i < width; ++i)
      out.data()[row + i] = weight[i] * (o[i] * inverse_root) * Silu(z[i]);
  }
}

// n: the normalised o; grad_n = grad_y silu(z) weight; grad_o = (grad_n - n mean(grad_n n)) / root.
void GatedNormOperation::Backward(std::span<const Tensor> in, const Tensor& out,
                                  const Tensor& grad_out, std::span<Tensor> grad_in) const {
  const int64_t width = in[2].count();
  const double* weight = in[2].data();
  std::vector<double> n(width);
  std::vector<double> grad_n(width);
  for (int64_t row = 0; row < out.count(); row += width) {
    const double* o = in[0].data() + row;
    const double* z = in[1].data() + row;
    const double* grad_y = grad_out.data() + row;
    const double inverse_root = InverseRoot(o, width);
    double mean = 0.0;
    for (int64_t i = 0; i < width; ++i) {
      n[i] = o[i] * inverse_root;
      const double grad_scaled = grad_y[i] * Silu(z[i]);
      grad_n[i] = grad_scaled * weight[i];
      mean += grad_n[i] * n[i] / static_cast<double>(width);
      if (!grad_in[1].empty())
        grad_in[1].data()[row + i] += grad_y[i] * weight[i] * n[i] * SiluGrad(z[i]);
      if (!grad_in[2].empty()) grad_in[2].data()[i] += grad_scaled * n[i];
    }
    if (grad_in[0].empty()) continue;
    for (int64_t i = 0; i < width; ++i)
      grad_in[0].data()[row + i] += inverse_root * (grad_n[i] - n[i] * mean);
  }
}

Value GatedNorm(Tape& tape, Value o, Value z, Value weight, const GatedNormOptions& options) {
  return tape.Run(std::make_shared<GatedNormOperation>(options), {o, z, weight});
}

void RegisterGatedNorm(OperationRegistry& registry) {
  const DimExtent entries = Plain(Dim::kHeadDim, 6);
  const Dims o = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kKeyHead, 6),
                  Plain(Dim::kValueInKey, 6), entries};
  registry.Add("GatedNorm", {{.operation = std::make_shared<GatedNormOperation>(GatedNormOptions()),
                              .operands = {o, o, {entries}}}});
}

}  // namespace sumonce

#include "spmd/ops/l2_norm.h"

#include <cmath>

namespace sumonce {

absl::StatusOr<Declaration> L2NormOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const Dims& x = operands[0];
  if (x.empty() || x.back().dim != Dim::kHeadDim) return ShapeError(name(), "x", x, "[..., d]");
  return Declaration{.result = x, .mixes = SetOf(Dim::kHeadDim)};
}

double L2NormOperation::InverseRoot(const double* x, int64_t width) const {
  double sum = 0.0;
  for (int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
  return 1.0 / std::sqrt(sum + options_.eps);
}

void L2NormOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t width = out.dims().back().extent();
  for (int64_t row = 0; row < out.count(); row += width) {
    const double* x = in[0].data() + row;
    const double inverse_root = InverseRoot(x, width);
    for (int64_t i = 0; i < width; ++i) out.data()[row + i] = x[i] * inverse_root;
  }
}

void L2NormOperation::Backward(std::span<const Tensor> in, const Tensor& out,
                               const Tensor& grad_out, std::span<Tensor> grad_in) const {
  if (grad_in[0].empty()) return;
  const int64_t width = out.dims().back().extent();
  for (int64_t row = 0; row < out.count(); row += width) {
    const double inverse_root = InverseRoot(in[0].data() + row, width);
    const double* y = out.data() + row;
    const double* grad_y = grad_out.data() + row;
    double along_y = 0.0;
    for (int64_t i = 0; i < width; ++i) along_y += y[i] * grad_y[i];
    for (int64_t i = 0; i < width; ++i)
      grad_in[0].data()[row + i] += inverse_root * (grad_y[i] - y[i] * along_y);
  }
}

Value L2Norm(Tape& tape, Value x, const L2NormOptions& options) {
  return tape.Run(std::make_shared<L2NormOperation>(options), {x});
}

void RegisterL2Norm(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kKeyHead, 6),
                  Plain(Dim::kHeadDim, 6)};
  registry.Add("L2Norm", {{.operation = std::make_shared<L2NormOperation>(L2NormOptions()),
                           .operands = {x}}});
}

}  // namespace sumonce

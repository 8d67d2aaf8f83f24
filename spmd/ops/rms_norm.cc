#include "spmd/ops/rms_norm.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "spmd/ops/extents.h"

namespace sumonce {

absl::StatusOr<Declaration> RmsNormOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  const Dims& x = operands[0];
  const Dims& weight = operands[1];
  bool named = weight.size() == options_.dims.size();
  for (size_t i = 0; named && i < weight.size(); ++i) named = weight[i].dim == options_.dims[i];
  if (!named || !EndsWith(x, weight)) {
    std::string expected;
    for (Dim dim : options_.dims)
      absl::StrAppend(&expected, expected.empty() ? "" : ",", ToAbsl(Name(dim)));
    return absl::InvalidArgumentError(
        absl::StrCat("RmsNorm over ", expected, ": weight ", Describe(weight), " must be [",
                     expected, "] and x ", Describe(x), " must end with the same extents"));
  }
  Declaration declaration;
  declaration.result = x;
  declaration.linear = options_.zero_centered ? Linear() : Linear(1);
  declaration.mixes = SetOf(weight);
  return declaration;
}

void RmsNormOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t width = in[1].count();
  for (int64_t row = 0; row < in[0].count(); row += width) {
    const double* x = in[0].data() + row;
    const double inverse = InverseRms(x, width);
    for (int64_t i = 0; i < width; ++i) {
      out.data()[row + i] = x[i] * inverse * ScaleOf(in[1].data()[i]);
    }
  }
}

// n̄ = ȳ * scale; x̄ = (n̄ - n * mean(n̄ * n)) / rms; w̄ = sum of ȳ * n over the rows.
void RmsNormOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                                std::span<Tensor> grad_in) const {
  const int64_t width = in[1].count();
  for (int64_t row = 0; row < in[0].count(); row += width) {
    const double* x = in[0].data() + row;
    const double* y_grad = grad_out.data() + row;
    const double inverse = InverseRms(x, width);
    double projection = 0;
    for (int64_t i = 0; i < width; ++i) {
      projection += y_grad[i] * ScaleOf(in[1].data()[i]) * x[i] * inverse;
      if (!grad_in[1].empty()) grad_in[1].data()[i] += y_grad[i] * x[i] * inverse;
    }
    if (grad_in[0].empty()) continue;
    const double mean = projection / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) {
      const double normed_grad = y_grad[i] * ScaleOf(in[1].data()[i]);
      grad_in[0].data()[row + i] = inverse * (normed_grad - x[i] * inverse * mean);
    }
  }
}

double RmsNormOperation::InverseRms(const double* row, int64_t width) const {
  double squares = 0;
  for (int64_t i = 0; i < width; ++i) squares += row[i] * row[i];
  return 1.0 / std::sqrt(squares / static_cast<double>(width) + options_.eps);
}

Value RmsNorm(Tape& tape, Value x, Value weight, RmsNormOptions options) {
  return tape.Run(std::make_shared<RmsNormOperation>(std::move(options)), {x, weight});
}

void RegisterRmsNorm(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), h = Plain(Dim::kHidden, 6);
  const DimExtent g = Plain(Dim::kGroup, 6), d = Plain(Dim::kHeadDim, 6);
  RmsNormOptions zero_centered, per_head, both;
  zero_centered.zero_centered = true;
  per_head.dims = {Dim::kHeadDim};
  both.dims = {Dim::kGroup, Dim::kHeadDim};
  const auto norm = [](RmsNormOptions options) {
    return std::make_shared<RmsNormOperation>(std::move(options));
  };
  registry.Add("RmsNorm", {{norm({}), {{s, h}, {h}}},
                           {norm(zero_centered), {{s, h}, {h}}},
                           {norm(per_head), {{s, g, d}, {d}}},
                           {norm(both), {{s, g, d}, {g, d}}}});
}

}  // namespace sumonce

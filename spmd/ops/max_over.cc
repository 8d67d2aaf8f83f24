#include "spmd/ops/max_over.h"

#include <algorithm>

namespace sumonce {

absl::StatusOr<Declaration> MaxOverOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const Dims& x = operands[0];
  if (x.empty() || x.back().extent() == 0)
    return ShapeError(name(), "x", x, "[..., v] with entries along v");
  return Declaration{.result = WithoutLast(x), .maxima = SetOf(x.back().dim)};
}

void MaxOverOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t width = in[0].dims().back().extent();
  for (int64_t row = 0; row < out.count(); ++row) {
    const double* x = in[0].data() + row * width;
    out.data()[row] = *std::max_element(x, x + width);
  }
}

void MaxOverOperation::Backward(std::span<const Tensor> in, const Tensor& out,
                                const Tensor& grad_out, std::span<Tensor> grad_in) const {
  if (grad_in[0].empty()) return;
  const int64_t width = in[0].dims().back().extent();
  for (int64_t row = 0; row < out.count(); ++row) {
    const double* x = in[0].data() + row * width;
    const int64_t largest = std::max_element(x, x + width) - x;  // the first of equals
    grad_in[0].data()[row * width + largest] += grad_out.data()[row];
  }
}

Value MaxOver(Tape& tape, Value x) { return tape.Run(std::make_shared<MaxOverOperation>(), {x}); }

void RegisterMaxOver(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kVocab, 6)};
  registry.Add("MaxOver", {{.operation = std::make_shared<MaxOverOperation>(), .operands = {x}}});
}

}  // namespace sumonce

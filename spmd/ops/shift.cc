#include "spmd/ops/shift.h"

namespace sumonce {

absl::StatusOr<Declaration> ShiftOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  const Dims& x = operands[0];
  if (x.empty()) return ShapeError(name(), "x", x, "[..., v]");
  if (operands[1] != WithoutLast(x)) {
    return ShapeError(name(), "m", operands[1],
                      absl::StrCat(Describe(WithoutLast(x)), ", x without its last"));
  }
  return Declaration{.result = x};
}

void ShiftOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t width = out.dims().back().extent();
  for (int64_t i = 0; i < out.count(); ++i)
    out.data()[i] = in[0].data()[i] - in[1].data()[i / width];
}

void ShiftOperation::Backward(std::span<const Tensor>, const Tensor& out, const Tensor& grad_out,
                              std::span<Tensor> grad_in) const {
  const int64_t width = out.dims().back().extent();
  for (int64_t i = 0; i < out.count(); ++i) {
    if (!grad_in[0].empty()) grad_in[0].data()[i] += grad_out.data()[i];
    if (!grad_in[1].empty()) grad_in[1].data()[i / width] -= grad_out.data()[i];
  }
}

Value Shift(Tape& tape, Value x, Value m) {
  return tape.Run(std::make_shared<ShiftOperation>(), {x, m});
}

void RegisterShift(OperationRegistry& registry) {
  const Dims m = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6)};
  const Dims x = {m[0], m[1], Plain(Dim::kVocab, 6)};
  registry.Add(
      "Shift",
      {{.operation = std::make_shared<ShiftOperation>(), .operands = {x, m}, .polynomial = true}});
}

}  // namespace sumonce

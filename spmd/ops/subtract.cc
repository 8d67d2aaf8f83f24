#include "spmd/ops/subtract.h"

namespace sumonce {

absl::StatusOr<Declaration> SubtractOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  if (operands[1] != operands[0]) {
    return ShapeError(name(), "b", operands[1], absl::StrCat(Describe(operands[0]), " as a"));
  }
  return Declaration{.result = operands[0], .addition = true};
}

void SubtractOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  for (int64_t i = 0; i < out.count(); ++i) out.data()[i] = in[0].data()[i] - in[1].data()[i];
}

void SubtractOperation::Backward(std::span<const Tensor>, const Tensor&, const Tensor& grad_out,
                                 std::span<Tensor> grad_in) const {
  for (int64_t i = 0; i < grad_out.count(); ++i) {
    if (!grad_in[0].empty()) grad_in[0].data()[i] += grad_out.data()[i];
    if (!grad_in[1].empty()) grad_in[1].data()[i] -= grad_out.data()[i];
  }
}

Value Subtract(Tape& tape, Value a, Value b) {
  return tape.Run(std::make_shared<SubtractOperation>(), {a, b});
}

void RegisterSubtract(OperationRegistry& registry) {
  const Dims a = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6)};
  registry.Add("Subtract", {{.operation = std::make_shared<SubtractOperation>(),
                             .operands = {a, a},
                             .polynomial = true}});
}

}  // namespace sumonce

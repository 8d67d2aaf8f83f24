#include "spmd/ops/scale_by.h"

namespace sumonce {

absl::StatusOr<Declaration> ScaleByOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  return Declaration{.result = operands[0], .linear = Linear(0)};
}

void ScaleByOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  for (int64_t i = 0; i < out.count(); ++i) out.data()[i] = factor_ * in[0].data()[i];
}

void ScaleByOperation::Backward(std::span<const Tensor>, const Tensor&, const Tensor& grad_out,
                                std::span<Tensor> grad_in) const {
  if (grad_in[0].empty()) return;
  for (int64_t i = 0; i < grad_out.count(); ++i) {
    grad_in[0].data()[i] += factor_ * grad_out.data()[i];
  }
}

Value ScaleBy(Tape& tape, Value x, double factor) {
  return tape.Run(std::make_shared<ScaleByOperation>(factor), {x});
}

void RegisterScaleBy(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kHidden, 6)};
  registry.Add("ScaleBy", {{.operation = std::make_shared<ScaleByOperation>(2.0),
                            .operands = {x},
                            .polynomial = true}});
}

}  // namespace sumonce

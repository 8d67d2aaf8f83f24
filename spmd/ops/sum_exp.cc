#include "spmd/ops/sum_exp.h"

#include "base/math.h"

namespace sumonce {

absl::StatusOr<Declaration> SumExpOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const Dims& x = operands[0];
  if (x.empty()) return ShapeError(name(), "x", x, "[..., v]");
  return Declaration{.result = WithoutLast(x), .sums = SetOf(x.back().dim)};
}

void SumExpOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t width = in[0].dims().back().extent();
  for (int64_t i = 0; i < in[0].count(); ++i) out.data()[i / width] += Exp(in[0].data()[i]);
}

void SumExpOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                               std::span<Tensor> grad_in) const {
  if (grad_in[0].empty()) return;
  const int64_t width = in[0].dims().back().extent();
  for (int64_t i = 0; i < in[0].count(); ++i) {
    grad_in[0].data()[i] += grad_out.data()[i / width] * Exp(in[0].data()[i]);
  }
}

Value SumExp(Tape& tape, Value x) { return tape.Run(std::make_shared<SumExpOperation>(), {x}); }

void RegisterSumExp(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kVocab, 6)};
  registry.Add("SumExp", {{.operation = std::make_shared<SumExpOperation>(), .operands = {x}}});
}

}  // namespace sumonce

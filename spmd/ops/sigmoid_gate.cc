#include "spmd/ops/sigmoid_gate.h"

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "base/status.h"
#include "spmd/ops/shape.h"

namespace sumonce {

absl::StatusOr<Declaration> SigmoidGateOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  const bool of_entries = operands[0] == operands[1];
  if (!of_entries && (operands[0].empty() || operands[1] != WithoutLast(operands[0]))) {
    return absl::InvalidArgumentError(absl::StrCat("SigmoidGate: c ", Describe(operands[0]),
                                                   " and gate ", Describe(operands[1]),
                                                   " must be equal, but for c's last dimension"));
  }
  Declaration declaration;
  declaration.result = operands[0];
  declaration.linear = Linear(0);
  return declaration;
}

void SigmoidGateOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t width = out.count() / in[1].count();
  for (int64_t i = 0; i < out.count(); ++i) {
    out.data()[i] = in[0].data()[i] * Sigmoid(in[1].data()[i / width]);
  }
}

void SigmoidGateOperation::Backward(std::span<const Tensor> in, const Tensor&,
                                    const Tensor& grad_out, std::span<Tensor> grad_in) const {
  const int64_t width = grad_out.count() / in[1].count();
  for (int64_t i = 0; i < grad_out.count(); ++i) {
    const double sigmoid = Sigmoid(in[1].data()[i / width]);
    if (!grad_in[0].empty()) grad_in[0].data()[i] = grad_out.data()[i] * sigmoid;
    if (grad_in[1].empty()) continue;
    grad_in[1].data()[i / width] += grad_out.data()[i] * in[0].data()[i] * sigmoid * (1 - sigmoid);
  }
}

Value SigmoidGate(Tape& tape, Value c, Value gate) {
  return tape.Run(std::make_shared<SigmoidGateOperation>(), {c, gate});
}

void RegisterSigmoidGate(OperationRegistry& registry) {
  const Dims dims = {Plain(Dim::kSequence, 6), Plain(Dim::kGroup, 6)};
  const auto gate = std::make_shared<SigmoidGateOperation>();
  registry.Add("SigmoidGate", {{gate, {dims, dims}}, {gate, {dims, {dims[0]}}}});
}

}  // namespace sumonce

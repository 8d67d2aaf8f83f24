#include "spmd/ops/sigmoid_gate.h"

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "base/status.h"

namespace sumonce {

absl::StatusOr<Declaration> SigmoidGateOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  if (operands[0] != operands[1]) {
    return absl::InvalidArgumentError(absl::StrCat("SigmoidGate: c ", Describe(operands[0]),
                                                   " and gate ", Describe(operands[1]),
                                                   " must be equal"));
  }
  Declaration declaration;
  declaration.result = operands[0];
  declaration.linear = Linear(0);
  return declaration;
}

void SigmoidGateOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  for (int64_t i = 0; i < out.count(); ++i) {
    out.data()[i] = in[0].data()[i] * Sigmoid(in[1].data()[i]);
  }
}

void SigmoidGateOperation::Backward(std::span<const Tensor> in, const Tensor&,
                                    const Tensor& grad_out, std::span<Tensor> grad_in) const {
  for (int64_t i = 0; i < grad_out.count(); ++i) {
    const double sigmoid = Sigmoid(in[1].data()[i]);
    if (!grad_in[0].empty()) grad_in[0].data()[i] = grad_out.data()[i] * sigmoid;
    if (grad_in[1].empty()) continue;
    grad_in[1].data()[i] = grad_out.data()[i] * in[0].data()[i] * sigmoid * (1 - sigmoid);
  }
}

Value SigmoidGate(Tape& tape, Value c, Value gate) {
  return tape.Run(std::make_shared<SigmoidGateOperation>(), {c, gate});
}

void RegisterSigmoidGate(OperationRegistry& registry) {
  const Dims dims = {Plain(Dim::kSequence, 6), Plain(Dim::kGroup, 6)};
  registry.Add("SigmoidGate", {{std::make_shared<SigmoidGateOperation>(), {dims, dims}}});
}

}  // namespace sumonce

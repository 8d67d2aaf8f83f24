#include "spmd/ops/add.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {

absl::StatusOr<Declaration> AddOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  if (operands[0] != operands[1]) {
    return absl::InvalidArgumentError(absl::StrCat("Add: a ", Describe(operands[0]), " and b ",
                                                   Describe(operands[1]), " must be equal"));
  }
  Declaration declaration;
  declaration.result = operands[0];
  declaration.addition = true;
  return declaration;
}

void AddOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  for (int64_t i = 0; i < out.count(); ++i) out.data()[i] = in[0].data()[i] + in[1].data()[i];
}

void AddOperation::Backward(std::span<const Tensor>, const Tensor&, const Tensor& grad_out,
                            std::span<Tensor> grad_in) const {
  for (Tensor& grad : grad_in) {
    if (!grad.empty()) AddInto(grad, grad_out);
  }
}

Value Add(Tape& tape, Value a, Value b) {
  return tape.Run(std::make_shared<AddOperation>(), {a, b});
}

void RegisterAdd(OperationRegistry& registry) {
  const Dims dims = {Plain(Dim::kSequence, 6), Plain(Dim::kHidden, 6)};
  registry.Add("Add", {{std::make_shared<AddOperation>(), {dims, dims}, {}, true}});
}

}  // namespace sumonce

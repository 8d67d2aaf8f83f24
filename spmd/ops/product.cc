#include "spmd/ops/product.h"

#include "spmd/ops/shape.h"

namespace sumonce {

absl::StatusOr<Declaration> ProductOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  if (operands[0] != operands[1])
    return ShapeError(name(), "m", operands[1], absl::StrCat(Describe(operands[0]), " as x"));
  return Declaration{.result = operands[0], .linear = Linear(0, 1)};
}

void ProductOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  for (int64_t i = 0; i < out.count(); ++i) out.data()[i] = in[0].data()[i] * in[1].data()[i];
}

void ProductOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                                std::span<Tensor> grad_in) const {
  for (size_t operand = 0; operand < 2; ++operand) {
    if (grad_in[operand].empty()) continue;
    const double* other = in[1 - operand].data();
    for (int64_t i = 0; i < grad_out.count(); ++i)
      grad_in[operand].data()[i] += grad_out.data()[i] * other[i];
  }
}

Value Product(Tape& tape, Value x, Value m) {
  return tape.Run(std::make_shared<ProductOperation>(), {x, m});
}

void RegisterProduct(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kIn, 6)};
  const auto product = std::make_shared<ProductOperation>();
  registry.Add("Product", {{product, {x, x}, {}, true}, {product, {x, x}, {false, true}, true}});
}

}  // namespace sumonce

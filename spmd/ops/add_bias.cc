#include "spmd/ops/add_bias.h"

#include "spmd/ops/extents.h"

namespace sumonce {

absl::StatusOr<Declaration> AddBiasOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  if (operands[1].empty() || !EndsWith(operands[0], operands[1])) {
    return ShapeError("AddBias", "bias", operands[1],
                      "the last dimensions of x " + Describe(operands[0]));
  }
  return Declaration{.result = operands[0], .addition = true};
}

void AddBiasOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t width = in[1].count();
  for (int64_t i = 0; i < out.count(); ++i) {
    out.data()[i] = in[0].data()[i] + in[1].data()[i % width];
  }
}

void AddBiasOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                                std::span<Tensor> grad_in) const {
  const int64_t width = in[1].count();
  for (int64_t i = 0; i < grad_out.count(); ++i) {
    if (!grad_in[0].empty()) grad_in[0].data()[i] += grad_out.data()[i];
    if (!grad_in[1].empty()) grad_in[1].data()[i % width] += grad_out.data()[i];
  }
}

Value AddBias(Tape& tape, Value x, Value bias) {
  return tape.Run(std::make_shared<AddBiasOperation>(), {x, bias});
}

void RegisterAddBias(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), b = Plain(Dim::kBatch, 6),
                  h = Plain(Dim::kHidden, 6);
  registry.Add("AddBias", {{.operation = std::make_shared<AddBiasOperation>(),
                            .operands = {{s, b, h}, {h}},
                            .polynomial = true}});
}

}  // namespace sumonce

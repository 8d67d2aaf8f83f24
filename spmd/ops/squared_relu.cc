#include "spmd/ops/squared_relu.h"

namespace sumonce {

SquaredReluOperation::SquaredReluOperation()
    : ElementwiseOperation(
          "SquaredRelu", [](double x) { return x > 0 ? x * x : 0.0; },
          [](double x, double) { return x > 0 ? 2 * x : 0.0; }) {}

Value SquaredRelu(Tape& tape, Value x) {
  return tape.Run(std::make_shared<SquaredReluOperation>(), {x});
}

void RegisterSquaredRelu(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kFfn, 6)};
  registry.Add("SquaredRelu",
               {{.operation = std::make_shared<SquaredReluOperation>(), .operands = {x}}});
}

}  // namespace sumonce

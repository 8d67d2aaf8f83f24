#include "spmd/ops/sigmoid.h"

#include "base/math.h"

namespace sumonce {

SigmoidOperation::SigmoidOperation()
    : ElementwiseOperation("Sigmoid", Sigmoid, [](double, double y) { return y * (1.0 - y); }) {}

Value Sigmoid(Tape& tape, Value x) { return tape.Run(std::make_shared<SigmoidOperation>(), {x}); }

void RegisterSigmoid(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kKeyHead, 6)};
  registry.Add("Sigmoid", {{.operation = std::make_shared<SigmoidOperation>(), .operands = {x}}});
}

}  // namespace sumonce

#include "spmd/ops/gelu.h"

#include "base/math.h"

namespace sumonce {

GeluOperation::GeluOperation()
    : ElementwiseOperation("Gelu", Gelu, [](double x, double) { return GeluGrad(x); }) {}

GeluTanhOperation::GeluTanhOperation()
    : ElementwiseOperation("GeluTanh", GeluTanh, [](double x, double) { return GeluTanhGrad(x); }) {
}

Value Gelu(Tape& tape, Value x) { return tape.Run(std::make_shared<GeluOperation>(), {x}); }
Value GeluTanh(Tape& tape, Value x) { return tape.Run(std::make_shared<GeluTanhOperation>(), {x}); }

void RegisterGelu(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kFfn, 6)};
  registry.Add("Gelu", {{.operation = std::make_shared<GeluOperation>(), .operands = {x}}});
  registry.Add("GeluTanh", {{.operation = std::make_shared<GeluTanhOperation>(), .operands = {x}}});
}

}  // namespace sumonce

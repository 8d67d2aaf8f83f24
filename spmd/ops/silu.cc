#include "spmd/ops/silu.h"

#include "base/math.h"

namespace sumonce {

SiluOperation::SiluOperation()
    : ElementwiseOperation("Silu", Silu, [](double x, double) { return SiluGrad(x); }) {}

Value Silu(Tape& tape, Value x) { return tape.Run(std::make_shared<SiluOperation>(), {x}); }

void RegisterSilu(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kKeyHead, 6)};
  registry.Add("Silu", {{.operation = std::make_shared<SiluOperation>(), .operands = {x}}});
}

}  // namespace sumonce

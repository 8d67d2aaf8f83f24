#include "spmd/ops/log.h"

#include "base/math.h"

namespace sumonce {

LogOperation::LogOperation()
    : ElementwiseOperation("Log", Log, [](double x, double) { return 1.0 / x; }) {}

Value Log(Tape& tape, Value x) { return tape.Run(std::make_shared<LogOperation>(), {x}); }

void RegisterLog(OperationRegistry& registry) {
  const Dims x = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kKeyHead, 6)};
  registry.Add(
      "Log",
      {{.operation = std::make_shared<LogOperation>(), .operands = {x}, .low = 0.5, .high = 3.0}});
}

}  // namespace sumonce

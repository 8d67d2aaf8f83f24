// y = max(x, 0)^2. x: any dimensions, all free.
#pragma once

#include "spmd/ops/elementwise.h"
#include "spmd/tape.h"

namespace sumonce {

class SquaredReluOperation final : public ElementwiseOperation {
 public:
  SquaredReluOperation();
};

Value SquaredRelu(Tape& tape, Value x);

}  // namespace sumonce

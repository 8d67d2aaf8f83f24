// y = log x, x > 0; of the loss's summed exponentials. x: any dimensions, all free.
#pragma once

#include "spmd/ops/elementwise.h"
#include "spmd/tape.h"

namespace sumonce {

class LogOperation final : public ElementwiseOperation {
 public:
  LogOperation();
};

Value Log(Tape& tape, Value x);

}  // namespace sumonce

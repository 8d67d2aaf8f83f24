// y = log x, x > 0; of the summed exponentials of the loss. x: any dimensions, all free.
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

// y = x sigmoid(x). x: any dimensions, all free.
#pragma once

#include "spmd/ops/elementwise.h"
#include "spmd/tape.h"

namespace sumonce {

class SiluOperation final : public ElementwiseOperation {
 public:
  SiluOperation();
};

Value Silu(Tape& tape, Value x);

}  // namespace sumonce

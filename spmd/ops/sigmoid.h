// y = 1 / (1 + e^-x); GatedDeltaNet's beta. x: any dimensions, all free.
#pragma once

#include "spmd/ops/elementwise.h"
#include "spmd/tape.h"

namespace sumonce {

class SigmoidOperation final : public ElementwiseOperation {
 public:
  SigmoidOperation();
};

Value Sigmoid(Tape& tape, Value x);

}  // namespace sumonce

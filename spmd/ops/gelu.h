// y = gelu(x), exact (x Phi(x)) or by tanh (base/math.h). x: any dimensions, all free.
#pragma once

#include "spmd/ops/elementwise.h"
#include "spmd/tape.h"

namespace sumonce {

class GeluOperation final : public ElementwiseOperation {
 public:
  GeluOperation();
};

class GeluTanhOperation final : public ElementwiseOperation {
 public:
  GeluTanhOperation();
};

Value Gelu(Tape& tape, Value x);
Value GeluTanh(Tape& tape, Value x);

}  // namespace sumonce

// Whether numbers and proof agree on a parameter (docs/ARCHITECTURE.md "Agreement"). Two that do
// not are our own fault.
#pragma once

#include "verify/verdict.h"

namespace sumonce {

bool Agrees(const Verdict& numbers, const Proof& proof);

}  // namespace sumonce

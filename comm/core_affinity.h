// On which cores threads run. Elsewhere than on Linux nothing is known and nothing is done.
#pragma once

#include <vector>

namespace sumonce {

// The cores that the calling thread may use, in ascending order; empty if the system does not say.
std::vector<int> AllowedCores();
// Keeps the calling thread on one core from now on. A wish: a system that refuses leaves it where
// it is.
void PinThread(int core);

}  // namespace sumonce

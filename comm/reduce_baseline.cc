// The reduction in 16-byte vectors, for any CPU.
#include "comm/reduce_vector.h"

namespace sumonce::internal {

const ReduceKernels* BaselineReduceKernels() { return &kReduceKernels<16>; }

}  // namespace sumonce::internal

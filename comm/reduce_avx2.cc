// The reduction in 32-byte vectors; compiled for CPUs that have them (comm/CMakeLists.txt), called
// only there.
#include "comm/reduce_kernels.h"

#ifdef __AVX2__

#include "comm/reduce_vector.h"

namespace sumonce::internal {

const ReduceKernels* Avx2ReduceKernels() {
  return __builtin_cpu_supports("avx2") ? &kReduceKernels<32> : nullptr;
}

}  // namespace sumonce::internal

#else

namespace sumonce::internal {

const ReduceKernels* Avx2ReduceKernels() { return nullptr; }

}  // namespace sumonce::internal

#endif

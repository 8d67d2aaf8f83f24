// The reduction in 64-byte vectors; compiled for CPUs that have them (comm/CMakeLists.txt), called
// only there.
#include "comm/reduce_kernels.h"

#ifdef __AVX512F__

#include "comm/reduce_vector.h"

namespace sumonce::internal {

const ReduceKernels* Avx512ReduceKernels() {
  return __builtin_cpu_supports("avx512f") ? &kReduceKernels<64> : nullptr;
}

}  // namespace sumonce::internal

#else

namespace sumonce::internal {

const ReduceKernels* Avx512ReduceKernels() { return nullptr; }

}  // namespace sumonce::internal

#endif

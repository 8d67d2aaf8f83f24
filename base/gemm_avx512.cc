#include "base/gemm_kernels.h"

namespace sumonce::internal {

const GemmKernels* Avx512GemmKernels() { return nullptr; }

}  // namespace sumonce::internal

#include "base/gemm_kernels.h"

namespace sumonce::internal {

const GemmKernels* Avx2GemmKernels() { return nullptr; }

}  // namespace sumonce::internal

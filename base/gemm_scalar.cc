// The kernel of any CPU: std::fma, which the C library emulates (slowly) where the hardware has
// none.
#include <cmath>

#include "base/gemm_kernels.h"

namespace sumonce::internal {
namespace {

// Row by row, p outside of j: per element still ascending p, and compilers that may use a vector
// FMA do.
template <typename T>
void Multiply(const GemmOperands<T>& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    T* c = g.c + i * g.c_row;
    for (int64_t j = 0; j < g.n && !g.accumulate; ++j) c[j] = 0;
    for (int64_t p = 0; p < g.k; ++p) {
      const T a = g.a[i * g.a_row + p * g.a_column];
      const T* b = g.b + p * g.b_row;
      for (int64_t j = 0; j < g.n; ++j) c[j] = std::fma(a, b[j * g.b_column], c[j]);
    }
  }
}

}  // namespace

const GemmKernels* ScalarGemmKernels() {
  static constexpr GemmKernels kKernels = {GemmKernel::kScalar, Multiply<double>, Multiply<float>};
  return &kKernels;
}

}  // namespace sumonce::internal

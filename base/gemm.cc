#include "base/gemm.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "base/gemm_kernels.h"
#include "base/status.h"

namespace sumonce {
namespace {

using internal::GemmKernels;
using internal::GemmOperands;

const GemmKernels* KernelsOf(GemmKernel kernel) {
  switch (kernel) {
    case GemmKernel::kScalar:
      return internal::ScalarGemmKernels();
    case GemmKernel::kAvx2:
      return internal::Avx2GemmKernels();
    case GemmKernel::kAvx512:
      return internal::Avx512GemmKernels();
  }
  return nullptr;
}

// What Gemm calls; all kernels give the same bits, so a change while others multiply is harmless.
std::atomic<const GemmKernels*>& Active() {
  static std::atomic<const GemmKernels*> active = KernelsOf(BestGemmKernel());
  return active;
}

void Run(const GemmKernels& kernels, const GemmOperands<double>& operands) {
  kernels.float64(operands);
}
void Run(const GemmKernels& kernels, const GemmOperands<float>& operands) {
  kernels.float32(operands);
}

void CheckStride(const char* matrix, int64_t stride, int64_t columns) {
  SUMONCE_CHECK(stride >= columns)
      << matrix << " has " << columns << " columns, its row stride is " << stride;
}

template <typename T>
void ClearRows(GemmShape shape, T* c, int64_t ldc) {
  for (int64_t i = 0; i < shape.m; ++i) std::fill_n(c + i * ldc, shape.n, T{0});
}

}  // namespace

template <typename T>
void Gemm(GemmShape shape, Transpose transpose_a, const T* a, int64_t lda, Transpose transpose_b,
          const T* b, int64_t ldb, T* c, int64_t ldc, bool accumulate) {
  const auto [m, n, k] = shape;
  const bool a_is_transposed = transpose_a == Transpose::kYes;
  const bool b_is_transposed = transpose_b == Transpose::kYes;
  SUMONCE_CHECK(m >= 0 && n >= 0 && k >= 0) << m << " x " << n << " x " << k;
  CheckStride("A", lda, a_is_transposed ? m : k);
  CheckStride("B", ldb, b_is_transposed ? k : n);
  CheckStride("C", ldc, n);
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate) ClearRows(shape, c, ldc);
    return;
  }
  Run(*Active().load(std::memory_order_relaxed),
      GemmOperands<T>{m, n, k, a, a_is_transposed ? 1 : lda, a_is_transposed ? lda : 1, b,
                      b_is_transposed ? 1 : ldb, b_is_transposed ? ldb : 1, c, ldc, accumulate});
}

template void Gemm<double>(GemmShape, Transpose, const double*, int64_t, Transpose, const double*,
                           int64_t, double*, int64_t, bool);
template void Gemm<float>(GemmShape, Transpose, const float*, int64_t, Transpose, const float*,
                          int64_t, float*, int64_t, bool);

GemmKernel BestGemmKernel() {
  for (const GemmKernel kernel : {GemmKernel::kAvx512, GemmKernel::kAvx2}) {
    if (KernelsOf(kernel) != nullptr) return kernel;
  }
  return GemmKernel::kScalar;
}

bool HasGemmKernel(GemmKernel kernel) { return KernelsOf(kernel) != nullptr; }

void ForceGemmKernel(GemmKernel kernel) {
  SUMONCE_CHECK(HasGemmKernel(kernel)) << Name(kernel) << " is not available here";
  Active().store(KernelsOf(kernel), std::memory_order_relaxed);
}

std::string_view Name(GemmKernel kernel) {
  switch (kernel) {
    case GemmKernel::kScalar:
      return "scalar";
    case GemmKernel::kAvx2:
      return "avx2";
    case GemmKernel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

namespace internal {

void* GemmScratch(size_t bytes) {
  struct Free {
    void operator()(void* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local size_t size = 0;
  if (bytes > size) {
    memory.reset();
    memory.reset(::operator new (bytes, std::align_val_t{64}));
    size = bytes;
  }
  return memory.get();
}

}  // namespace internal
}  // namespace sumonce

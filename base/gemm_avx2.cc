// The kernel for AVX2 with FMA; compiled for these (base/CMakeLists.txt), called only where the CPU
// has them.
#include "base/gemm_kernels.h"

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

#include "base/gemm_blocked.h"
#include "base/gemm_transpose.h"

namespace sumonce::internal {
namespace {

// Eight ones before eight zeros: a window of it masks the first lanes.
alignas(64) constexpr int32_t kMask32[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                             0,  0,  0,  0,  0,  0,  0,  0};

__m256i FirstLanes(int64_t lanes32) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask32 + 8 - lanes32));
}

// 6 rows of 2 vectors: 12 sums, 2 vectors of B and 1 of A in 16 registers.
struct Doubles {
  using Scalar = double;
  using Vector = __m256d;
  static constexpr int kWidth = 4, kRows = 6, kPackStep = 4;
  static Vector Zero() { return _mm256_setzero_pd(); }
  static Vector Broadcast(double x) { return _mm256_set1_pd(x); }
  static Vector Load(const double* p) { return _mm256_loadu_pd(p); }
  static void Store(double* p, Vector v) { _mm256_storeu_pd(p, v); }
  static Vector LoadFirst(const double* p, int64_t count) {
    return _mm256_maskload_pd(p, FirstLanes(2 * count));
  }
  static void StoreFirst(double* p, int64_t count, Vector v) {
    _mm256_maskstore_pd(p, FirstLanes(2 * count), v);
  }
  static Vector MultiplyAdd(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
  static void Transpose(const double* from, int64_t from_row, double* to, int64_t to_row) {
    Transpose4x4(from, from_row, to, to_row);
  }
};

struct Floats {
  using Scalar = float;
  using Vector = __m256;
  static constexpr int kWidth = 8, kRows = 6, kPackStep = 4;
  static Vector Zero() { return _mm256_setzero_ps(); }
  static Vector Broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Vector LoadFirst(const float* p, int64_t count) {
    return _mm256_maskload_ps(p, FirstLanes(count));
  }
  static void StoreFirst(float* p, int64_t count, Vector v) {
    _mm256_maskstore_ps(p, FirstLanes(count), v);
  }
  static Vector MultiplyAdd(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static void Transpose(const float* from, int64_t from_row, float* to, int64_t to_row) {
    Transpose4x4(from, from_row, to, to_row);
  }
};

}  // namespace

const GemmKernels* Avx2GemmKernels() {
  static constexpr GemmKernels kKernels = {GemmKernel::kAvx2, Multiply<Doubles>, Multiply<Floats>};
  const bool supported = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return supported ? &kKernels : nullptr;
}

}  // namespace sumonce::internal

#else

namespace sumonce::internal {

const GemmKernels* Avx2GemmKernels() { return nullptr; }

}  // namespace sumonce::internal

#endif

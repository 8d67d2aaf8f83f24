// The kernel for AVX-512F; compiled for it (base/CMakeLists.txt), called only where the CPU has it.
#include "base/gemm_kernels.h"

#if defined(__AVX512F__) && defined(__AVX2__)

#include <immintrin.h>

#include "base/gemm_blocked.h"
#include "base/gemm_transpose.h"

namespace sumonce::internal {
namespace {

// 12 rows of 2 vectors: 24 sums, 2 vectors of B and 1 of A in 32 registers.
struct Doubles {
  using Scalar = double;
  using Vector = __m512d;
  static constexpr int kWidth = 8, kRows = 12, kPackStep = 4;
  static __mmask8 First(int64_t count) { return static_cast<__mmask8>((1u << count) - 1); }
  static Vector Zero() { return _mm512_setzero_pd(); }
  static Vector Broadcast(double x) { return _mm512_set1_pd(x); }
  static Vector Load(const double* p) { return _mm512_loadu_pd(p); }
  static void Store(double* p, Vector v) { _mm512_storeu_pd(p, v); }
  static Vector LoadFirst(const double* p, int64_t count) {
    return _mm512_maskz_loadu_pd(First(count), p);
  }
  static void StoreFirst(double* p, int64_t count, Vector v) {
    _mm512_mask_storeu_pd(p, First(count), v);
  }
  static Vector MultiplyAdd(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
  static void Transpose(const double* from, int64_t from_row, double* to, int64_t to_row) {
    Transpose4x4(from, from_row, to, to_row);
  }
};

struct Floats {
  using Scalar = float;
  using Vector = __m512;
  static constexpr int kWidth = 16, kRows = 12, kPackStep = 4;
  static __mmask16 First(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
  static Vector Zero() { return _mm512_setzero_ps(); }
  static Vector Broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector LoadFirst(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(First(count), p);
  }
  static void StoreFirst(float* p, int64_t count, Vector v) {
    _mm512_mask_storeu_ps(p, First(count), v);
  }
  static Vector MultiplyAdd(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static void Transpose(const float* from, int64_t from_row, float* to, int64_t to_row) {
    Transpose4x4(from, from_row, to, to_row);
  }
};

}  // namespace

const GemmKernels* Avx512GemmKernels() {
  static constexpr GemmKernels kKernels = {GemmKernel::kAvx512, Multiply<Doubles>,
                                           Multiply<Floats>};
  const bool supported = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2");
  return supported ? &kKernels : nullptr;
}

}  // namespace sumonce::internal

#else

namespace sumonce::internal {

const GemmKernels* Avx512GemmKernels() { return nullptr; }

}  // namespace sumonce::internal

#endif

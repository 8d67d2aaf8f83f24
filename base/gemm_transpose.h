// Internal to base/gemm_avx*.cc: transposed copies of 4 x 4 elements, with what both instruction
// sets have.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace sumonce::internal {
namespace {

inline void Transpose4x4(const double* from, int64_t from_row, double* to, int64_t to_row) {
  const __m256d r0 = _mm256_loadu_pd(from), r1 = _mm256_loadu_pd(from + from_row);
  const __m256d r2 = _mm256_loadu_pd(from + 2 * from_row);
  const __m256d r3 = _mm256_loadu_pd(from + 3 * from_row);
  const __m256d even01 = _mm256_unpacklo_pd(r0, r1), odd01 = _mm256_unpackhi_pd(r0, r1);
  const __m256d even23 = _mm256_unpacklo_pd(r2, r3), odd23 = _mm256_unpackhi_pd(r2, r3);
  _mm256_storeu_pd(to, _mm256_permute2f128_pd(even01, even23, 0x20));
  _mm256_storeu_pd(to + to_row, _mm256_permute2f128_pd(odd01, odd23, 0x20));
  _mm256_storeu_pd(to + 2 * to_row, _mm256_permute2f128_pd(even01, even23, 0x31));
  _mm256_storeu_pd(to + 3 * to_row, _mm256_permute2f128_pd(odd01, odd23, 0x31));
}

inline void Transpose4x4(const float* from, int64_t from_row, float* to, int64_t to_row) {
  __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + from_row);
  __m128 r2 = _mm_loadu_ps(from + 2 * from_row), r3 = _mm_loadu_ps(from + 3 * from_row);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(to, r0);
  _mm_storeu_ps(to + to_row, r1);
  _mm_storeu_ps(to + 2 * to_row, r2);
  _mm_storeu_ps(to + 3 * to_row, r3);
}

}  // namespace
}  // namespace sumonce::internal

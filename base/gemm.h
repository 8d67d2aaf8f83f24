// The fixed-order matrix product. Every element of C is one chain of fused multiply-adds over ascending k, starting
// from 0 (or from C when accumulating): the same bits as the plain loop for every shape, shard and instruction set.
// Row-major. Single-threaded: ranks are the parallelism.
#pragma once

#include <cstdint>

namespace sumonce {

enum class Transpose : bool { kNo = false, kYes = true };

struct GemmShape {
  int64_t m = 0;  // rows of C
  int64_t n = 0;  // columns of C
  int64_t k = 0;  // the contracted extent
};

// C[m,n] = op(A)[m,k] · op(B)[k,n] (+ C if accumulate). lda, ldb, ldc are row strides of A, B, C as stored.
// T is double or float. C must not overlap A or B.
template <typename T>
void Gemm(GemmShape shape, Transpose transpose_a, const T* a, int64_t lda, Transpose transpose_b, const T* b,
          int64_t ldb, T* c, int64_t ldc, bool accumulate);

extern template void Gemm<double>(GemmShape, Transpose, const double*, int64_t, Transpose, const double*, int64_t,
                                  double*, int64_t, bool);
extern template void Gemm<float>(GemmShape, Transpose, const float*, int64_t, Transpose, const float*, int64_t,
                                 float*, int64_t, bool);

// Which kernel this CPU gets: "avx512", "avx2" or "scalar". For `doctor` and the tests, which force each in turn.
enum class GemmKernel { kScalar, kAvx2, kAvx512 };
GemmKernel BestGemmKernel();
// Overrides the choice for the process (tests, bench); asking for one that the CPU lacks is a failed check.
void ForceGemmKernel(GemmKernel kernel);

}  // namespace sumonce

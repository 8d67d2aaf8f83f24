// The fixed-order matrix product. Every element of C is one chain of fused multiply-adds over
// ascending k, starting from 0 (or from C when accumulating): the same bits as the plain loop for
// every shape, shard and instruction set (only which of several NaNs comes out is open). Row-major.
// Single-threaded: ranks are the parallelism.
#pragma once

#include <cstdint>
#include <string_view>

namespace sumonce {

enum class Transpose : bool { kNo = false, kYes = true };

struct GemmShape {
  int64_t m = 0;  // rows of C
  int64_t n = 0;  // columns of C
  int64_t k = 0;  // the contracted extent
};

// C[m,n] = op(A)[m,k] · op(B)[k,n] (+ C if accumulate). lda, ldb, ldc are row strides of A, B, C as
// stored. T is double or float. C must not overlap A or B. A negative extent or a stride below the
// row's length is a failed check.
template <typename T>
void Gemm(GemmShape shape, Transpose transpose_a, const T* a, int64_t lda, Transpose transpose_b,
          const T* b, int64_t ldb, T* c, int64_t ldc, bool accumulate);

extern template void Gemm<double>(GemmShape, Transpose, const double*, int64_t, Transpose,
                                  const double*, int64_t, double*, int64_t, bool);
extern template void Gemm<float>(GemmShape, Transpose, const float*, int64_t, Transpose,
                                 const float*, int64_t, float*, int64_t, bool);

// The implementations; all give the same bits.
enum class GemmKernel { kScalar, kAvx2, kAvx512 };
std::string_view Name(GemmKernel kernel);  // "scalar", "avx2", "avx512"
// Whether this build and this CPU have it.
bool HasGemmKernel(GemmKernel kernel);
// The one that this CPU gets.
GemmKernel BestGemmKernel();
// Overrides the choice for the process (tests, bench); asking for one that the CPU lacks is a
// failed check.
void ForceGemmKernel(GemmKernel kernel);

}  // namespace sumonce

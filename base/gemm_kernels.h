// Internal to base/gemm*: what the kernels of the instruction sets have in common with the
// dispatcher.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/gemm.h"

namespace sumonce::internal {

// One product C[m,n] (+)= A[m,k] · B[k,n] with m, n, k > 0; element (i, p) of A is a[i * a_row + p
// * a_column], so a transposed operand is one with its strides exchanged.
template <typename T>
struct GemmOperands {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_column;
  const T* b;
  int64_t b_row, b_column;
  T* c;  // columns are adjacent
  int64_t c_row;
  bool accumulate;
};

struct GemmKernels {
  GemmKernel kind;
  void (*float64)(const GemmOperands<double>&);
  void (*float32)(const GemmOperands<float>&);
};

const GemmKernels* ScalarGemmKernels();
// Null if this build or this CPU lacks the instruction set.
const GemmKernels* Avx2GemmKernels();
const GemmKernels* Avx512GemmKernels();

// The calling thread's buffer for packed operands, 64-byte aligned, valid until its next call.
void* GemmScratch(size_t bytes);

}  // namespace sumonce::internal

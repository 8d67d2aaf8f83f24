// oneDNN's float32 matrix product as a peer of ours, where libdnnl-dev is installed.
#pragma once

#include <cstdint>

namespace sumonce {

// c [m, n] = a [m, k] b [k, n], or b^T with b [n, k]: row-major. False where there is no oneDNN.
bool DnnlSgemm(bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
               float* c);
bool HasDnnl();

}  // namespace sumonce

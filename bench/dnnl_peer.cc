#include "bench/dnnl_peer.h"

#include <dnnl.h>

namespace sumonce {

bool DnnlSgemm(bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
               float* c) {
  return dnnl_sgemm('N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, k, b, transpose_b ? k : n, 0.0f,
                    c, n) == dnnl_success;
}

bool HasDnnl() { return true; }

}  // namespace sumonce

// Row-major arithmetic shared by the kernels: a tensor seen around one of its dimensions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spmd/dim.h"

namespace sumonce {

// The tensor as [outer, dims[position], inner].
struct Around {
  int64_t outer = 1;
  int64_t inner = 1;
};
inline Around ExtentsAround(const Dims& dims, int position) {
  Around around;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (i < position) around.outer *= dims[i].extent();
    if (i > position) around.inner *= dims[i].extent();
  }
  return around;
}

// Whether `dims` ends with `tail`, entry by entry.
inline bool EndsWith(const Dims& dims, const Dims& tail) {
  return dims.size() >= tail.size() &&
         std::equal(tail.begin(), tail.end(), dims.end() - tail.size());
}

}  // namespace sumonce

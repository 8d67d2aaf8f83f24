// What the shape checks of operations share.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "spmd/dim.h"

namespace sumonce {

// "CausalConv: weight is [k=6, t=4], expected [k=4, t]"
inline absl::Status ShapeError(std::string_view operation, std::string_view operand,
                               const Dims& dims, std::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(operation), ": ", ToAbsl(operand), " is ",
                                                 Describe(dims), ", expected ", ToAbsl(expected)));
}

// Exactly these dimensions in this order, of any extent.
inline bool HasDims(const Dims& dims, std::initializer_list<Dim> order) {
  if (dims.size() != order.size()) return false;
  size_t i = 0;
  for (const Dim dim : order) {
    if (dims[i++].dim != dim) return false;
  }
  return true;
}

inline Dims WithoutLast(const Dims& dims) { return Dims(dims.begin(), dims.end() - 1); }
inline Dims LastOf(const Dims& dims, size_t count) { return Dims(dims.end() - count, dims.end()); }

}  // namespace sumonce

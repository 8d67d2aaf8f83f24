#include "spmd/dim.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce {

std::string_view Name(Dim dim) {
  static constexpr std::string_view kNames[kNumDims] = {"s", "b", "h", "g", "k", "f", "v", "r", "q",
                                                        "j", "d", "t", "o", "i", "p", "l", "e"};
  return kNames[static_cast<int>(dim)];
}

std::string Describe(DimSet set) {
  std::string text;
  for (int i = 0; i < kNumDims; ++i) {
    if (!Contains(set, static_cast<Dim>(i))) continue;
    if (!text.empty()) text += ",";
    text += Name(static_cast<Dim>(i));
  }
  return text;
}

int64_t DimExtent::width() const { return std::accumulate(parts.begin(), parts.end(), int64_t{0}); }

int64_t DimExtent::Index(int64_t unit, size_t part, int64_t i) const {
  const int64_t before = std::accumulate(parts.begin(), parts.begin() + part, int64_t{0});
  if (packing == Packing::kUnitMajor) return unit * width() + before + i;
  return units * before + unit * parts[part] + i;
}

int64_t Count(const Dims& dims) {
  int64_t count = 1;
  for (const DimExtent& dim : dims) count *= dim.extent();
  return count;
}

int Find(const Dims& dims, Dim dim) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].dim == dim) return static_cast<int>(i);
  }
  return -1;
}

DimSet SetOf(const Dims& dims) {
  DimSet set = 0;
  for (const DimExtent& dim : dims) set |= SetOf(dim.dim);
  return set;
}

std::string Describe(const Dims& dims) {
  std::string text = "[";
  for (const DimExtent& dim : dims) {
    if (text.size() > 1) text += ", ";
    absl::StrAppend(&text, ToAbsl(Name(dim.dim)), "=", dim.units);
    if (dim.parts.size() > 1) {
      absl::StrAppend(&text, "x(",
                      absl::StrJoin(dim.parts, dim.packing == Packing::kUnitMajor ? "," : "|"),
                      ")");
    } else if (dim.parts[0] != 1) {
      absl::StrAppend(&text, "x", dim.parts[0]);
    }
  }
  return text + "]";
}

DimExtent Plain(Dim dim, int64_t extent) { return {.dim = dim, .units = extent}; }

}  // namespace sumonce

// For tests: small arrays of numbers, and the mathematics of recorded operations on them.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "trace/program.h"

namespace sumonce::trace::testing {

struct Array {
  Extents shape;
  std::vector<double> data;  // row-major

  explicit Array(Extents extents = {}, double fill = 0);
  int64_t count() const { return static_cast<int64_t>(data.size()); }
};

using Index = Extents;
// Calls `visit` with each index of a shape, last dimension fastest.
void ForEachIndex(const Extents& shape, const std::function<void(const Index&)>& visit);
double& At(Array& array, const Index& index);
double At(const Array& array, const Index& index);
Geometry Contiguous(const Extents& shape);

// f of each entry, of entries of operands that are repeated along extents of 1.
using Entries = std::vector<double>;
Array Elementwise(const std::vector<Array>& in, const std::function<double(const Entries&)>& f);
// Letters as in "ik,kj->ij": sums of products.
Array Einsum(const std::vector<Array>& in, std::string_view letters);
// Each line along `dim` by itself.
using Line = std::vector<double>;
Array AlongLines(const Array& in, int dim, const std::function<Line(const Line&)>& f);
// Over `dims`, f of all entries there.
Array Reduced(const Array& in, const std::vector<int>& dims, bool keep,
              const std::function<double(const Line&)>& f);
// Whether a view of a contiguous array lies in it, and what it shows.
bool LiesIn(const Array& in, const Geometry& view);
Array Seen(const Array& in, const Geometry& view);

}  // namespace sumonce::trace::testing

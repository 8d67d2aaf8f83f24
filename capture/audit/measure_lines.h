// Rows and columns of a replicated matrix whose contributions are alike on all ranks of the tensor
// axis, and those that are not: a gradient that is complete in some rows and partial in others is a
// mixed use. For one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "capture/audit/measure.h"

namespace sumonce::capture {

class LineMeasurer {
 public:
  // Of any other shape than a matrix, or beyond some million lines, nothing is counted.
  void Prepare(const std::vector<int64_t>& shape);
  // A chunk of `count` elements from `begin`. `base[h]`: the holder that h is compared with, or -1;
  // `values(h)`: its elements.
  void Add(int64_t begin, int64_t count, const std::vector<int>& base,
           const std::function<const double*(int)>& values);
  // Counts the lines: `equal` and `unequal` are the squares of the relative limits.
  void Conclude(double equal, double unequal, Measure& measure) const;

 private:
  struct Lines {
    std::vector<double> difference, square;
    LineCounts Count(double equal, double unequal) const;
  };
  int64_t columns_ = 0;  // extent of dimension 1; 0: not asked
  Lines by_row_, by_column_;
};

}  // namespace sumonce::capture

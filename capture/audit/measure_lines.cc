#include "capture/audit/measure_lines.h"

#include <algorithm>
#include <cstring>

namespace sumonce::capture {
namespace {

constexpr int64_t kMaxLines = int64_t{1} << 22;
// Short lines may be alike by chance.
constexpr int64_t kMinElements = 4;

}  // namespace

void LineMeasurer::Prepare(const std::vector<int64_t>& shape) {
  if (shape.size() != 2 || shape[0] + shape[1] > kMaxLines) return;
  if (shape[0] < kMinElements || shape[1] < kMinElements) return;
  columns_ = shape[1];
  by_row_ = {std::vector<double>(shape[0]), std::vector<double>(shape[0])};
  by_column_ = {std::vector<double>(shape[1]), std::vector<double>(shape[1])};
}

void LineMeasurer::Add(int64_t begin, int64_t count, const std::vector<int>& base,
                       const std::function<const double*(int)>& values) {
  if (columns_ == 0) return;
  for (size_t h = 0; h < base.size(); ++h) {
    if (base[h] < 0) continue;
    const double *x = values(static_cast<int>(h)), *y = values(base[h]);
    int64_t row = begin / columns_;
    int64_t column = begin % columns_;
    for (int64_t i = 0; i < count; ++i) {
      const double difference = (x[i] - y[i]) * (x[i] - y[i]);
      const double square = std::max(x[i] * x[i], y[i] * y[i]);
      by_row_.difference[row] += difference;
      by_row_.square[row] += square;
      by_column_.difference[column] += difference;
      by_column_.square[column] += square;
      if (++column == columns_) {
        column = 0;
        ++row;
      }
    }
  }
}

void LineMeasurer::Conclude(double equal, double unequal, Measure& measure) const {
  measure.rows = by_row_.Count(equal, unequal);
  measure.columns = by_column_.Count(equal, unequal);
}

LineCounts LineMeasurer::Lines::Count(double equal, double unequal) const {
  LineCounts counts;
  for (size_t i = 0; i < square.size(); ++i) {
    if (square[i] == 0) continue;
    if (difference[i] <= equal * square[i]) ++counts.equal;
    if (difference[i] > unequal * square[i]) ++counts.unequal;
  }
  return counts;
}

}  // namespace sumonce::capture

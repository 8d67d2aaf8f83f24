// Loops over elements: the only part of an audit whose time counts. Plain loops that compilers turn
// into vector code; results do not depend on how.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace sumonce::capture {

// Four running sums, so that additions need not wait for one another; the order is fixed.
inline double SumOfSquares(const double* x, int64_t count) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int lane = 0; lane < 4; ++lane) sums[lane] += x[i + lane] * x[i + lane];
  }
  for (; i < count; ++i) sums[0] += x[i] * x[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

inline double SumOfSquaredDifferences(const double* x, const double* y, int64_t count) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int lane = 0; lane < 4; ++lane) {
      const double difference = x[i + lane] - y[i + lane];
      sums[lane] += difference * difference;
    }
  }
  for (; i < count; ++i) sums[0] += (x[i] - y[i]) * (x[i] - y[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

inline void TakeMagnitudes(const double* x, int64_t count, double* magnitude) {
  for (int64_t i = 0; i < count; ++i) magnitude[i] = std::fabs(x[i]);
}

inline void AddTo(double* sum, const double* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += x[i];
}

// sum += x, magnitude += |x|.
inline void AddTerm(const double* x, int64_t count, double* sum, double* magnitude) {
  for (int64_t i = 0; i < count; ++i) {
    sum[i] += x[i];
    magnitude[i] += std::fabs(x[i]);
  }
}

struct FitBound {
  double factor = 1;    // expected = factor * sum
  double relative = 0;  // allowed = relative * |factor| * magnitude + absolute
  double absolute = 0;
};

// Elements of f that are not within the bound of factor * sum; NaN never is.
inline int64_t CountMisfits(const double* f, const double* sum, const double* magnitude,
                            int64_t count, const FitBound& bound) {
  const double relative = bound.relative * std::fabs(bound.factor);
  int64_t misfits = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool fits =
        std::fabs(f[i] - bound.factor * sum[i]) <= relative * magnitude[i] + bound.absolute;
    misfits += fits ? 0 : 1;
  }
  return misfits;
}

}  // namespace sumonce::capture

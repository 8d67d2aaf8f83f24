// Least squares with few unknowns, none of them negative: times and times per byte.
#pragma once

#include <vector>

namespace sumonce {

// x >= 0 that minimises the sum over rows of (row . x - target)^2. Exact: every subset of the
// unknowns is tried as the positive ones, so keep them to a handful (at most 8).
std::vector<double> NonNegativeLeastSquares(const std::vector<std::vector<double>>& rows,
                                            const std::vector<double>& targets);

}  // namespace sumonce

#include "cost/least_squares.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/status.h"

namespace sumonce {
namespace {

using Matrix = std::vector<std::vector<double>>;

// Gauss with pivoting; an unknown that the equations do not determine is 0.
std::vector<double> Solve(Matrix a, std::vector<double> b) {
  const size_t size = b.size();
  for (size_t column = 0; column < size; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < size; ++row) {
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    }
    std::swap(a[column], a[pivot]);
    std::swap(b[column], b[pivot]);
    if (std::abs(a[column][column]) < 1e-12) continue;
    for (size_t row = column + 1; row < size; ++row) {
      const double factor = a[row][column] / a[column][column];
      for (size_t k = column; k < size; ++k) a[row][k] -= factor * a[column][k];
      b[row] -= factor * b[column];
    }
  }
  std::vector<double> x(size, 0.0);
  for (size_t row = size; row-- > 0;) {
    if (std::abs(a[row][row]) < 1e-12) continue;
    double rest = b[row];
    for (size_t k = row + 1; k < size; ++k) rest -= a[row][k] * x[k];
    x[row] = rest / a[row][row];
  }
  return x;
}

std::vector<size_t> Members(unsigned subset, size_t unknowns) {
  std::vector<size_t> members;
  for (size_t k = 0; k < unknowns; ++k) {
    if (subset >> k & 1U) members.push_back(k);
  }
  return members;
}

double Residual(const Matrix& rows, const std::vector<double>& targets,
                const std::vector<double>& x) {
  double sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    double error = -targets[i];
    for (size_t k = 0; k < x.size(); ++k) error += rows[i][k] * x[k];
    sum += error * error;
  }
  return sum;
}

}  // namespace

std::vector<double> NonNegativeLeastSquares(const std::vector<std::vector<double>>& rows,
                                            const std::vector<double>& targets) {
  SUMONCE_CHECK(!rows.empty() && rows.size() == targets.size()) << rows.size() << " rows";
  const size_t unknowns = rows[0].size();
  SUMONCE_CHECK(unknowns > 0 && unknowns <= 8) << unknowns << " unknowns";
  // Columns of length 1: bytes and steps differ by many powers of ten.
  std::vector<double> length(unknowns, 0.0);
  for (const auto& row : rows) {
    for (size_t k = 0; k < unknowns; ++k) length[k] += row[k] * row[k];
  }
  Matrix scaled = rows;
  for (size_t k = 0; k < unknowns; ++k) {
    length[k] = length[k] > 0 ? std::sqrt(length[k]) : 1.0;
    for (auto& row : scaled) row[k] /= length[k];
  }
  Matrix gram(unknowns, std::vector<double>(unknowns, 0.0));
  std::vector<double> right(unknowns, 0.0);
  for (size_t i = 0; i < scaled.size(); ++i) {
    for (size_t a = 0; a < unknowns; ++a) {
      right[a] += scaled[i][a] * targets[i];
      for (size_t b = 0; b < unknowns; ++b) gram[a][b] += scaled[i][a] * scaled[i][b];
    }
  }
  std::vector<double> best(unknowns, 0.0);
  double least = std::numeric_limits<double>::infinity();
  for (unsigned subset = 1; subset < (1U << unknowns); ++subset) {
    const std::vector<size_t> positive = Members(subset, unknowns);
    Matrix part;
    std::vector<double> part_right;
    for (const size_t a : positive) {
      part.emplace_back();
      for (const size_t b : positive) part.back().push_back(gram[a][b]);
      part_right.push_back(right[a]);
    }
    const std::vector<double> solved = Solve(part, part_right);
    std::vector<double> x(unknowns, 0.0);
    bool feasible = true;
    for (size_t a = 0; a < positive.size(); ++a) {
      x[positive[a]] = solved[a];
      feasible = feasible && solved[a] >= 0;
    }
    if (!feasible) continue;
    const double residual = Residual(scaled, targets, x);
    if (residual < least) {
      least = residual;
      best = x;
    }
  }
  for (size_t k = 0; k < unknowns; ++k) best[k] /= length[k];
  return best;
}

}  // namespace sumonce

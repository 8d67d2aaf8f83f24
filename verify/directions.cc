#include "verify/directions.h"

#include <algorithm>
#include <cmath>

namespace sumonce {
namespace {

// Elements are summed in blocks, and the blocks' sums are added: fewer roundings follow one
// another.
constexpr size_t kBlock = 256;
constexpr int kRefinements = 2;

double MaxAbs(std::span<const double> values) {
  double max = 0;
  for (double value : values) max = std::max(max, std::fabs(value));
  return max;
}

}  // namespace

Directions::Directions(std::span<const std::span<const double>> vectors, double bound)
    : vectors_(vectors),
      n_(static_cast<int>(vectors.size())),
      unit_(vectors.size()),
      tolerance_(vectors.size()),
      pivot_(vectors.size()),
      swept_(vectors.size() * vectors.size()) {
  Measure(bound);
  Factorise();
}

// Units, tolerances and the Gram matrix.
void Directions::Measure(double bound) {
  const size_t count = n_ == 0 ? 0 : vectors_[0].size();
  const double roundings = static_cast<double>(kBlock + count / kBlock + n_);
  for (int s = 0; s < n_; ++s) {
    const double max = MaxAbs(vectors_[s]);
    unit_[s] = max > bound ? std::ldexp(1.0, -std::ilogb(max) - 1) : 0.0;
    const double unseen = bound * unit_[s];
    tolerance_[s] =
        std::max(64 * roundings * 0x1p-53, static_cast<double>(count) * unseen * unseen);
  }
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t end = std::min(count, begin + kBlock);
    for (int s = 0; s < n_; ++s) {
      for (int t = 0; t <= s; ++t) {
        double sum = 0;
        for (size_t i = begin; i < end; ++i)
          sum += (vectors_[s][i] * unit_[s]) * (vectors_[t][i] * unit_[t]);
        At(s, t) += sum;
      }
    }
  }
  for (int s = 0; s < n_; ++s) {
    for (int t = 0; t < s; ++t) At(t, s) = At(s, t);
  }
}

// Gauss-Jordan in place, always at the vector that is farthest from the span of those already
// taken.
void Directions::Factorise() {
  for (;;) {
    int k = -1;
    for (int s = 0; s < n_; ++s) {
      if (!pivot_[s] && At(s, s) > tolerance_[s] && (k < 0 || At(s, s) > At(k, k))) k = s;
    }
    if (k < 0) return;
    pivot_[k] = true;
    ++rank_;
    const double inverse = 1 / At(k, k);
    for (int i = 0; i < n_; ++i) {
      if (i == k) continue;
      const double factor = At(i, k) * inverse;
      for (int j = 0; j < n_; ++j) {
        if (j != k) At(i, j) -= factor * At(k, j);
      }
      At(i, k) = -factor;
    }
    for (int j = 0; j < n_; ++j) At(k, j) *= inverse;
    At(k, k) = inverse;
  }
}

// The null vector of each j that is no pivot: z_j = 1, z_B = -inv(G_BB) G_Bj.
bool Directions::Determined(int s) const {
  if (!pivot_[s]) return false;
  for (int j = 0; j < n_; ++j) {
    if (!pivot_[j] && std::fabs(At(s, j)) > std::sqrt(tolerance_[j])) return false;
  }
  return true;
}

bool Directions::SumDetermined() const {
  for (int j = 0; j < n_; ++j) {
    if (pivot_[j]) continue;
    if (unit_[j] == 0) return false;  // z is j alone
    double sum = unit_[j];
    for (int i = 0; i < n_; ++i) {
      if (pivot_[i]) sum -= At(i, j) * unit_[i];
    }
    if (std::fabs(sum) > std::sqrt(tolerance_[j]) * unit_[j]) return false;
  }
  return true;
}

// The normal equations square the condition; each refinement solves again for what is left, and
// brings it down to the rounding of the sum itself.
std::vector<double> Directions::Nearest(std::span<const double> target) const {
  std::vector<double> coefficients(n_);
  for (int pass = 0; pass <= kRefinements; ++pass) {
    std::vector<double> dots(n_);
    for (size_t begin = 0; begin < target.size(); begin += kBlock) {
      std::vector<double> left(target.begin() + begin,
                               target.begin() + std::min(target.size(), begin + kBlock));
      for (int s = 0; s < n_; ++s) {
        for (size_t i = 0; i < left.size(); ++i)
          left[i] -= coefficients[s] * vectors_[s][begin + i];
      }
      for (int s = 0; s < n_; ++s) {
        double sum = 0;
        for (size_t i = 0; i < left.size(); ++i)
          sum += left[i] * (vectors_[s][begin + i] * unit_[s]);
        dots[s] += sum;
      }
    }
    for (int s = 0; s < n_; ++s) {
      if (!pivot_[s]) continue;
      double step = 0;
      for (int t = 0; t < n_; ++t) {
        if (pivot_[t]) step += At(s, t) * dots[t];
      }
      coefficients[s] += step * unit_[s];
    }
  }
  return coefficients;
}

}  // namespace sumonce

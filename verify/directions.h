// The directions that n vectors span, and least squares in them, by a pivoted factorisation of
// their n x n Gram matrix (docs/THEORY.md "Recovery"; theory section 9.1, step 3). Streams over the
// elements: no copy of the vectors.
#pragma once

#include <span>
#include <vector>

namespace sumonce {

class Directions {
 public:
  // `vectors`: n finite vectors of one count, kept alive by the caller. A direction that no element
  // tells from the others by more than `bound` is not seen.
  Directions(std::span<const std::span<const double>> vectors, double bound);

  int rank() const { return rank_; }
  // Whether all combinations with one result have the same coefficient of vector s: z_s = 0 for
  // every null vector z.
  bool Determined(int s) const;
  // The same of the sum of the coefficients: sum_s z_s = 0 for every null vector z.
  bool SumDetermined() const;
  // Coefficients of the combination nearest to `target` (least squares), 0 for what adds no
  // direction.
  std::vector<double> Nearest(std::span<const double> target) const;

 private:
  void Measure(double bound);
  void Factorise();
  double& At(int i, int j) { return swept_[static_cast<size_t>(i) * n_ + j]; }
  double At(int i, int j) const { return swept_[static_cast<size_t>(i) * n_ + j]; }

  std::span<const std::span<const double>> vectors_;
  int n_ = 0;
  int rank_ = 0;
  std::vector<double>
      unit_;  // power of two that brings each vector's greatest element to [1/2, 1); 0: not seen
  std::vector<double> tolerance_;  // squared length of a direction, per unit_, that is not seen
  std::vector<bool> pivot_;
  // The Gram matrix G after sweeping the pivots B: inverse of G_BB there, inv(G_BB) G_BF beside it,
  // n x n row-major.
  std::vector<double> swept_;
};

}  // namespace sumonce

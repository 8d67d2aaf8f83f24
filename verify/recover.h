// What the finalizer did to one parameter, from numbers: rank s contributed c_s, rank r ended with f_r = sum_s C[r,s] c_s.
// Named templates first; least squares only with its rank (docs/THEORY.md "Recovery"; theory section 9).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace sumonce {

struct RecoveredAction {
  // Every template that fits: "none", "SUM", "AVG", "SUM twice", "AVG twice", "n times own", "own / n", "copy of rank 0",
  // "rank 2 lost", "blocks of 2", "strides of 2", ... More than one: the data cannot tell them apart.
  std::vector<std::string> fits;
  int rank = 0;                              // of the contributions: directions that can be seen
  bool zero = false;                         // no evidence at all
  // No template fits: the least-squares C, n x n row-major, entries that the data determine; NaN where not.
  std::vector<double> coefficients;
  double residual = 0;                       // greatest |C c - f|
  bool inside_group = true;                  // false: f is no combination of these contributions
};

// `contributions[r]`, `results[r]`: rank r's elements, all of one count. `bound`: the allowed difference of one element.
RecoveredAction RecoverAction(std::span<const std::span<const double>> contributions,
                              std::span<const std::span<const double>> results, double bound);

// What would decide between the templates that fit, one sentence; "" if there is one.
std::string WhatWouldDecide(const RecoveredAction& action);

}  // namespace sumonce

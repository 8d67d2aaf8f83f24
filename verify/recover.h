// What the finalizer did to one parameter, from numbers: rank s contributed c_s, rank r ended with
// f_r = sum_s C[r,s] c_s. Named templates first; least squares only with its rank (docs/THEORY.md
// "Recovery"; theory section 9). C says what was done; only the gradient's class says whether it
// was right.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace sumonce {

struct RecoveredAction {
  // Every template that fits, more than one if the data cannot tell them apart. Of n ranks: "none"
  // (identity), "SUM", "AVG", "SUM twice" (n * ones), "AVG after /n" (ones / n^2; averaging twice
  // is averaging), "n times own", "own / n", "copy of rank 0", "n times rank 0", "rank 2 lost" (the
  // sum of all others), and sums over the wrong group: "blocks of 2" (neighbours), "strides of 2"
  // (ranks 2 apart). Two ranks: a copy of one is the other lost.
  std::vector<std::string> fits;
  int ranks = 0;      // n
  int rank = 0;       // of the contributions: directions that can be seen
  bool zero = false;  // every contribution is exactly zero: no evidence at all
  // No template fits: the least-squares C, n x n row-major, and its row sums; NaN where the data do
  // not determine them.
  std::vector<double> coefficients;
  std::vector<double> row_sums;
  double residual = 0;       // greatest |C c - f| of it
  bool inside_group = true;  // false: f is no combination of these contributions
};

// `contributions[r]`, `results[r]`: rank r's elements, all of one count. `bound`: the allowed
// difference of one element. Numbers that are not finite fit nothing and are no combination.
RecoveredAction RecoverAction(std::span<const std::span<const double>> contributions,
                              std::span<const std::span<const double>> results, double bound);

// What would decide between the templates that fit (or show where f came from, if none does), one
// sentence; "" if one fits (theory section 9.3).
std::string WhatWouldDecide(const RecoveredAction& action);

}  // namespace sumonce

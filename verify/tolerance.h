// How much a sound sharded run may differ from the reference: derived from the reduction tree that
// was actually run, never a round percentage (docs/DETERMINISM.md "Tolerance").
//
// Both runs evaluate the same formula; they associate sums differently and nothing else. A sum of K
// terms in any order is off by at most gamma_h * sum |terms|, gamma_h = h*u/(1 - h*u), u = 2^-53, h
// the height of its tree (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). h
// of a gradient is the sum over the operations on the tape, forward and backward, of the number of
// terms that each adds up: the longest chain of roundings that can stand between an input and it.
#pragma once

#include <map>
#include <string>

#include "sim/precision.h"
#include "spmd/numeric_tape.h"

namespace sumonce {

//
// That alone would hold for sums; norms, softmax and the delta rule amplify what reaches them. By
// how much is measured, on the reference: its start weights are moved, entry by entry, by up to
// gamma, and how far its gradient moves (relative to its largest entry) is added to gamma. An
// ill-conditioned model gets a wide bound, and the report prints it.
struct Tolerance {
  double height = 0;  // roundings on the longest chain
  double gamma = 0;   // gamma_height; 0 in exact mode
  double amplification =
      0;                // of one tensor: how far it moves, relatively, when weights move by gamma
  double rounding = 0;  // gamma of what mixed precision stores, from each term to the last sum
  // Allowed absolute difference for values whose terms have this magnitude.
  double For(double magnitude) const { return (gamma + amplification + rounding) * magnitude; }
};

// The same weights, each entry moved by up to gamma, keyed by (seed, name, index).
std::map<std::string, Tensor> Perturbed(const std::map<std::string, Tensor>& weights, double gamma,
                                        uint64_t seed);

// How far b is from a, relative to a's largest entry; 0 for a zero tensor.
double RelativeDistance(const Tensor& a, const Tensor& b);

// What storing terms, sums and reductions in `precision` may change a gradient by, relative to its
// terms' magnitude: a rounding of every term, and one of main_grad for every addition, factor and
// rank.
double RoundingOf(const PrecisionConfig& precision, int microbatches, int world_size);

// Height of the tree of one microbatch's tape (whole extents: the abstract tape's or the
// reference's), times what microbatches and the mesh add.
Tolerance DeriveTolerance(const Tape& tape, int microbatches, int world_size, bool exact);

// Whether |a - b| <= allowed everywhere. NaN differs from everything; other counts, or no arrays,
// are not equal.
struct Comparison {
  bool equal = false;
  double diff_abs_max = 0;
  double allowed = 0;
  int64_t mismatched = 0;
  int64_t worst = -1;  // index of the greatest difference
};
Comparison Compare(const Tensor& a, const Tensor& b, double allowed);

double MaxAbs(const Tensor& tensor);

}  // namespace sumonce

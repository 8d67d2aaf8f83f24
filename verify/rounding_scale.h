// How large the terms were of which a backward pass made each gradient. Where they cancel
// (attention on a single key: every score's gradient is zero), what is left is rounding alone: it
// has the size of its terms' roundings, not of itself, and differs between two sound runs by all
// that it is.
#pragma once

#include <map>
#include <utility>

#include "spmd/numeric_tape.h"

namespace sumonce {

class RoundingScale {
 public:
  // `reference`: after Backward, with all gradients kept, on a mesh of size 1. An operation's terms
  // are as large as its gradient times its other operands; what an operation rounds goes on as a
  // gradient of its own, of random signs drawn from `seed` and the operation's name, by the
  // operations' own backward: each is linear in the gradient that it gets.
  RoundingScale(const NumericTape& reference, uint64_t seed);

  // The magnitude of the terms behind what `operation` sends to `operand`, beyond that gradient's
  // own; 0 where it sends nothing.
  double Of(int operation, int operand) const;
  // Of the largest in the whole pass.
  double largest() const { return largest_; }

 private:
  void PassOn(const NumericTape& tape, int id, uint64_t seed);
  void PassLocal(const NumericTape& tape, int id, uint64_t seed);
  void Send(int operation, int operand, Tensor rounded);

  std::vector<Tensor> rounded_;  // by node: what has been rounded on the way to its gradient
  std::map<std::pair<int, int>, double> scales_;
  double largest_ = 0;
};

}  // namespace sumonce

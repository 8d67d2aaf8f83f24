// Rotary position embedding of the first rotary_dim entries of a head, pairs (i, i + rotary_dim/2)
// (spec/gdn-lora-math.md section 7): y_i = x_i cos - x_{i+half} sin, y_{i+half} = x_{i+half} cos +
// x_i sin, at the angle position * base^(-2i/rotary_dim). The rest passes through.
#pragma once

#include "spmd/operation.h"
#include "spmd/sequences.h"
#include "spmd/tape.h"

namespace sumonce {

struct RopeOptions {
  int64_t rotary_dim = 0;  // even, at most the head's extent
  double base = 10000.0;
  // Given tables instead of computed ones (frameworks round theirs): row-major [positions,
  // rotary_dim], at least as many positions as x has. Both or neither.
  std::vector<double> cos, sin;
  // Pairs (2i, 2i + 1) of x are rotated, the result laid out [firsts | seconds] as of the other
  // form (Megatron's multi-latent attention, DeepSeek).
  bool interleaved = false;
  // Positions begin anew at each packed sequence. Given tables have a row a token instead.
  SequenceStarts starts;
};

// x: [s, ..., d]; result as x. The position is the index along s in its sequence, so it mixes s as
// well as d. InvalidArgument if x does not begin with s and end with d, if d is shorter than
// rotary_dim, or if the tables are too short. Linear.
class RopeOperation : public Operation {
 public:
  explicit RopeOperation(RopeOptions options);
  std::string_view name() const override { return "Rope"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const RopeOptions& options() const { return options_; }

 private:
  RopeOptions options_;
};

Value Rope(Tape& tape, Value x, RopeOptions options);

}  // namespace sumonce

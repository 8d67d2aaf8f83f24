// The core of causal grouped-query attention (spec/gdn-lora-math.md section 7): per query head
// softmax(q k^T / sqrt(d)) v over the positions of its sequence up to its own.
#pragma once

#include "spmd/operation.h"
#include "spmd/sequences.h"
#include "spmd/tape.h"

namespace sumonce {

// q: [s, b, g, q, d]; k: [s, b, g, d]; v: [s, b, g, d'], the entries of a value head being any
// number; result [s, b, g, q, d']. Other dimensions or extents are InvalidArgument, as are starts
// beyond the tokens. Linear in v; mixes s and d (d of q and k is summed inside the softmax); b, g
// and q are free.
class AttentionOperation : public Operation {
 public:
  explicit AttentionOperation(SequenceStarts starts = {}) : starts_(std::move(starts)) {}
  std::string_view name() const override { return "Attention"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const SequenceStarts& starts() const { return starts_; }

 private:
  SequenceStarts starts_;
};

Value CoreAttention(Tape& tape, Value q, Value k, Value v, SequenceStarts starts = {});

}  // namespace sumonce

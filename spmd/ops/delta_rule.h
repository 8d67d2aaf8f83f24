// The gated delta rule, recurrent form (Hugging Face transformers, modeling_qwen3_next.py
// torch_recurrent_gated_delta_rule): per sequence and value head a state S [dk, dv], zero before
// the first token, and for each token
//   S' = e^g S;  u = beta (v - S'^T k);  S = S' + k u^T;  o = S^T q / sqrt(dk)
// (decay first, read the error with the decayed state, read the output after the write).
//   q, k: [s, b, k, d], dk entries, already l2-normalised; not scaled, that is done here
//   v: [s, b, k, j, d], dv entries; g (log decay, <= 0), beta: [s, b, k, j]
//   -> o: [s, b, k, j, d], dv entries. Value head (k, j) uses key head k.
// Linear in q and in v; mixes s and d (the name of the keys' entries, which the state contracts,
// and of the values'). Free: b, k and j; q and k have no j, so cutting j makes their gradients
// partial.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/tape.h"

namespace sumonce {

class DeltaRuleOperation final : public Operation {
 public:
  std::string_view name() const override { return "DeltaRule"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  // Recomputes and keeps the states of one head at a time: 2 s dk dv numbers.
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
};

Value DeltaRule(Tape& tape, Value q, Value k, Value v, Value g, Value beta);

}  // namespace sumonce

// The gated delta rule (Hugging Face transformers, modeling_qwen3_next.py): per sequence and value
// head a state S [dk, dv], and for each token
//   S' = e^g S;  u = beta (v - S'^T k);  S = S' + k u^T;  o = S^T q / sqrt(dk)
// (decay first, read the error with the decayed state, read the output after the write).
//   q, k: [s, b, k, d], dk entries, already l2-normalised; not scaled, that is done here
//   v: [s, b, k, j, d], dv entries; g (log decay, <= 0), beta: [s, b, k, j]
//   initial: [b, k, j, e, d], the state before the first token, or absent: zero
//   -> o: [s, b, k, j, d], dv entries. Value head (k, j) uses key head k.
// Linear in q, and without an initial state in v; mixes s and d (the name of the keys' entries,
// which the state contracts, and of the values'). Free: b, k and j; q and k have no j, so cutting j
// makes their gradients partial.
#pragma once

#include "spmd/ops/shape.h"
#include "spmd/sequences.h"
#include "spmd/tape.h"

namespace sumonce {

struct DeltaRuleOptions {
  SequenceStarts starts;  // the state is zero at each but the first
  // 0: token by token (torch_recurrent_gated_delta_rule). Else by chunks of so many tokens, which
  // begin anew at each sequence (torch_chunk_gated_delta_rule): the same but for rounding.
  int64_t chunk = 0;
};

class DeltaRuleOperation final : public Operation {
 public:
  explicit DeltaRuleOperation(DeltaRuleOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const override { return "DeltaRule"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  // Recomputes and keeps the states of one head of one sequence at a time: 2 s dk dv numbers.
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;
  const DeltaRuleOptions& options() const { return options_; }

 private:
  DeltaRuleOptions options_;
};

struct DeltaRuleInputs {
  Value q, k, v, g, beta;
  Value initial = {};  // valid: the state before the first token
};
Value DeltaRule(Tape& tape, const DeltaRuleInputs& inputs, DeltaRuleOptions options = {});

// The state after the last token, [b, k, j, e, d]: DeltaRule's operands but for q.
class DeltaStateOperation final : public Operation {
 public:
  explicit DeltaStateOperation(DeltaRuleOptions options = {}) : options_(std::move(options)) {}
  std::string_view name() const override { return "DeltaState"; }
  absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const override;
  void Forward(std::span<const Tensor> in, Tensor& out) const override;
  void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                std::span<Tensor> grad_in) const override;

 private:
  DeltaRuleOptions options_;
};

// `inputs.q` is not looked at.
Value DeltaState(Tape& tape, const DeltaRuleInputs& inputs, DeltaRuleOptions options = {});

}  // namespace sumonce

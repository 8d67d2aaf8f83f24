// For tests: both sweeps over one example of an operation (docs/THEORY.md "Obligations"). Forward:
// every combination of operand states along one axis of size n, the predicted state of the result
// against the ranks' arrays. Backward: for each, every state of the result's gradient, the
// predicted state of each operand's gradient against the whole's. Besides the states E, S, P of
// factor 1, one operand at a time has the factor n, or junk for values ("off").
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spmd/local_rules.h"
#include "spmd/testing/rank_arrays.h"

namespace sumonce::testing {

struct SweepResult {
  int forward_claims = 0;
  int backward_claims = 0;
  int forward_refusals = 0, backward_refusals = 0;
  int forward_run = 0, backward_run = 0;    // of them, those that could be run and were
  int forward_idle = 0, backward_idle = 0;  // of those, in some state after all
  std::vector<std::string> unsound;         // claims that the arrays contradict
};

class Sweep {
 public:
  // `falsify`: changes the declaration before the rules read it.
  using Falsify = std::function<void(Declaration&)>;
  Sweep(const OperationExample& example, int n, const Falsify& falsify = nullptr);
  SweepResult Run();

 private:
  struct Candidate {
    State state;
    bool junk = false;
    bool plain() const { return !junk && state.scale.IsOne(); }
  };
  struct Rank {
    std::vector<Tensor> in;
    Tensor out;
  };

  bool Constant(size_t i) const { return !example_.constant.empty() && example_.constant[i]; }
  std::vector<Candidate> CandidatesOf(const Dims& dims, bool constant) const;
  void ForEachCombination(size_t operand, bool special, const std::function<void()>& visit);
  RankArrays PlaceOperand(const Tensor& whole, const Candidate& candidate);
  void Visit();
  bool RunForward();
  void CheckForward(const State& predicted);
  void CheckBackward(const State& result);
  void CheckGradients(const State& result, const Candidate& cotangent);
  bool TakeRefusal(int& refusals);
  void Unsound(const std::string& what, const State& predicted);
  double Factor(const State& state) const { return state.scale.Evaluate(mesh_); }

  const OperationExample& example_;
  const int n_;
  const Mesh mesh_;
  const double tolerance_;
  const bool falsified_;
  Numbers numbers_;
  Declaration declaration_;
  std::vector<Tensor> whole_;  // operands
  Tensor whole_out_, cotangent_;
  std::vector<Tensor> whole_grads_;
  std::vector<std::vector<Candidate>> candidates_;
  std::vector<Candidate> chosen_;
  std::vector<OperandState> operands_;  // the view of chosen_ that the rules take
  std::vector<Rank> ranks_;
  int64_t refusal_stride_ = 1;
  SweepResult result_;
};

inline Sweep::Sweep(const OperationExample& example, int n, const Falsify& falsify)
    : example_(example),
      n_(n),
      mesh_(OneAxisMesh(n)),
      tolerance_(example.polynomial ? 0 : 1e-10),
      falsified_(falsify != nullptr),
      numbers_(example.operation->name(), example.polynomial, example.low, example.high) {
  declaration_ = *example.operation->Declare(example.operands);
  for (size_t i = 0; i < example.operands.size(); ++i) {
    whole_.push_back(numbers_.Fill(example.operands[i]));
    whole_grads_.push_back(Constant(i) ? Tensor() : Tensor(example.operands[i]));
    candidates_.push_back(CandidatesOf(example.operands[i], Constant(i)));
  }
  whole_out_ = Tensor(declaration_.result);
  example.operation->Forward(whole_, whole_out_);
  cotangent_ = Numbers("cotangent", example.polynomial, -2, 2).Fill(declaration_.result);
  example.operation->Backward(whole_, whole_out_, cotangent_, whole_grads_);
  if (falsify) falsify(declaration_);
  chosen_.resize(whole_.size());
}

inline SweepResult Sweep::Run() {
  int64_t combinations = 0;
  ForEachCombination(0, false, [&] { ++combinations; });
  refusal_stride_ = (combinations / 200) | 1;  // odd: no resonance with the order of the candidates
  ForEachCombination(0, false, [&] { Visit(); });
  return result_;
}

inline std::vector<Sweep::Candidate> Sweep::CandidatesOf(const Dims& dims, bool constant) const {
  std::vector<AxisState> layouts = {Equal()};
  for (const DimExtent& dim : dims) {
    if (dim.units % n_ == 0) layouts.push_back(Shard(dim.dim));
  }
  if (!constant) layouts.push_back(Partial(0));
  std::vector<Candidate> candidates;
  for (const AxisState& layout : layouts) {
    Candidate candidate;
    candidate.state[0] = layout;
    candidates.push_back(candidate);
    if (constant) continue;
    candidate.state.scale = Scale::SizeOfAxis(0);
    candidates.push_back(candidate);
    candidate.state.scale = Scale();
    candidate.state.off = {"junk", 0};
    candidate.junk = true;
    candidates.push_back(candidate);
  }
  return candidates;
}

inline void Sweep::ForEachCombination(size_t operand, bool special,
                                      const std::function<void()>& visit) {
  if (operand == whole_.size()) return visit();
  for (const Candidate& candidate : candidates_[operand]) {
    if (special && !candidate.plain()) continue;
    chosen_[operand] = candidate;
    ForEachCombination(operand + 1, special || !candidate.plain(), visit);
  }
}

inline RankArrays Sweep::PlaceOperand(const Tensor& whole, const Candidate& candidate) {
  RankArrays arrays = Place(whole, candidate.state[0], Factor(candidate.state), n_, numbers_);
  if (candidate.junk) {
    for (Tensor& array : arrays) array = numbers_.Fill(array.dims());
  }
  return arrays;
}

inline void Sweep::Visit() {
  if (falsified_ && !result_.unsound.empty()) return;  // one contradiction is enough
  operands_.clear();
  for (size_t i = 0; i < chosen_.size(); ++i)
    operands_.push_back({&example_.operands[i], &chosen_[i].state});
  const State predicted = LocalForward(declaration_, operands_, /*num_axes=*/1, /*operation=*/0);
  if (predicted.lost && !TakeRefusal(result_.forward_refusals)) return;
  const bool ran = RunForward();
  if (predicted.lost) {
    if (!ran) return;
    ++result_.forward_run;
    RankArrays outs;
    for (const Rank& rank : ranks_) outs.push_back(rank.out);
    result_.forward_idle += HoldsAnyState(outs, whole_out_, tolerance_);
    return;
  }
  if (!ran) return Unsound("forward: claimed, but the operands' shapes are refused", predicted);
  CheckForward(predicted);
  CheckBackward(predicted);
}

// False if a rank's shapes are refused.
inline bool Sweep::RunForward() {
  ranks_.assign(n_, {});
  for (size_t i = 0; i < whole_.size(); ++i) {
    const RankArrays arrays = PlaceOperand(whole_[i], chosen_[i]);
    for (int rank = 0; rank < n_; ++rank) ranks_[rank].in.push_back(arrays[rank]);
  }
  for (Rank& rank : ranks_) {
    std::vector<Dims> dims;
    for (const Tensor& tensor : rank.in) dims.push_back(tensor.dims());
    const absl::StatusOr<Declaration> local = example_.operation->Declare(dims);
    if (!local.ok()) return false;
    rank.out = Tensor(local->result);
    example_.operation->Forward(rank.in, rank.out);
  }
  return true;
}

inline void Sweep::CheckForward(const State& predicted) {
  RankArrays outs;
  bool junk = false;
  for (const Rank& rank : ranks_) outs.push_back(rank.out);
  for (const Candidate& candidate : chosen_) junk |= candidate.junk;
  if (predicted.off) {  // of the values only the layout is claimed
    const std::optional<Dims> dims = LocalDims(whole_out_.dims(), predicted[0], n_);
    if (!SameDims(outs) || outs[0].dims() != dims) Unsound("forward: another layout", predicted);
    ++result_.forward_refusals;
    ++result_.forward_run;
    result_.forward_idle += !junk && HoldsAnyState(outs, whole_out_, tolerance_);
    return;
  }
  ++result_.forward_claims;
  if (!Holds(predicted[0], Factor(predicted), outs, whole_out_, tolerance_))
    Unsound("forward", predicted);
}

inline void Sweep::CheckBackward(const State& result) {
  for (const Candidate& cotangent : CandidatesOf(declaration_.result, /*constant=*/false)) {
    if (!cotangent.junk) CheckGradients(result, cotangent);
  }
}

inline void Sweep::CheckGradients(const State& result, const Candidate& cotangent) {
  std::vector<State> predicted;
  bool claimed = false;
  for (size_t i = 0; i < whole_.size(); ++i) {
    predicted.push_back(LocalBackward(declaration_, operands_, result, cotangent.state, i, 1, 0));
    claimed |= !Constant(i) && predicted[i].ok();
  }
  if (!claimed && !TakeRefusal(result_.backward_refusals)) return;
  const RankArrays arrays = PlaceOperand(cotangent_, cotangent);
  std::vector<RankArrays> grads(whole_.size());
  for (int rank = 0; rank < n_; ++rank) {
    const Rank& at = ranks_[rank];
    if (arrays[rank].dims() != at.out.dims()) {
      if (claimed) Unsound("backward: claimed for a gradient of another shape", cotangent.state);
      return;
    }
    std::vector<Tensor> grad_in;
    for (size_t i = 0; i < whole_.size(); ++i) {
      grad_in.push_back(Constant(i) ? Tensor() : Tensor(at.in[i].dims()));
    }
    example_.operation->Backward(at.in, at.out, arrays[rank], grad_in);
    for (size_t i = 0; i < whole_.size(); ++i) grads[i].push_back(grad_in[i]);
  }
  for (size_t i = 0; i < whole_.size(); ++i) {
    if (Constant(i)) continue;
    if (!predicted[i].ok()) {
      ++result_.backward_run;
      result_.backward_refusals += claimed;  // else counted already
      result_.backward_idle += HoldsAnyState(grads[i], whole_grads_[i], tolerance_);
      continue;
    }
    ++result_.backward_claims;
    if (Holds(predicted[i][0], Factor(predicted[i]), grads[i], whole_grads_[i], tolerance_))
      continue;
    Unsound(absl::StrCat("backward of operand ", i, " for a gradient ",
                         Describe(cotangent.state, mesh_)),
            predicted[i]);
  }
}

// Counts a refusal; true if it is one of the sample that is run.
inline bool Sweep::TakeRefusal(int& refusals) { return refusals++ % refusal_stride_ == 0; }

inline void Sweep::Unsound(const std::string& what, const State& predicted) {
  std::string text = absl::StrCat(ToAbsl(example_.operation->name()), " n=", n_, ", operands");
  for (size_t i = 0; i < chosen_.size(); ++i) {
    absl::StrAppend(&text, i ? "; " : " ", Describe(example_.operands[i]), " ",
                    Describe(chosen_[i].state, mesh_));
  }
  result_.unsound.push_back(
      absl::StrCat(text, ": ", what, ", predicted ", Describe(predicted, mesh_)));
}

}  // namespace sumonce::testing

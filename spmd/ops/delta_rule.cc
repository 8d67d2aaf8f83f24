#include "spmd/ops/delta_rule.h"

#include <algorithm>

#include "spmd/delta_rule/head.h"

namespace sumonce {
namespace {

using delta_rule::Back;
using delta_rule::Head;
using delta_rule::kBeta;
using delta_rule::kG;
using delta_rule::kInitial;
using delta_rule::kK;
using delta_rule::kQ;
using delta_rule::kV;

// Visits each value head of each sequence.
template <typename Visit>
void ForEachDeltaHead(std::span<const Tensor> in, const DeltaRuleOptions& options, Visit visit) {
  const Dims& v = in[kV].dims();
  Head head{.rows = v[1].extent() * v[2].extent(),
            .ratio = v[3].extent(),
            .dk = in[kK].dims()[3].extent(),
            .dv = v[4].extent()};
  for (head.row = 0; head.row < head.rows; ++head.row) {
    for (head.value = 0; head.value < head.ratio; ++head.value) {
      for (const TokenRange& sequence : SequencesOf(options.starts, v[0].extent())) {
        head.begin = sequence.begin;
        head.end = sequence.end;
        visit(head);
      }
    }
  }
}

// The head's state before its sequence: only the first can have one.
std::vector<double> InitialOf(std::span<const Tensor> in, const Head& head) {
  if (in.size() <= kInitial || head.begin > 0) return std::vector<double>(head.dk * head.dv);
  const double* state = in[kInitial].data() + head.StateAt();
  return {state, state + head.dk * head.dv};
}

void Walk(std::span<const Tensor> in, const DeltaRuleOptions& options, const Head& head,
          std::vector<double>& state, double* o) {
  options.chunk > 0 ? WalkChunks(in, head, options.chunk, state, o)
                    : WalkTokens(in, head, state, o);
}

void WalkBack(std::span<const Tensor> in, const DeltaRuleOptions& options, const Head& head,
              Back& back) {
  const std::vector<double> initial = InitialOf(in, head);
  options.chunk > 0 ? WalkChunksBack(in, head, options.chunk, initial, back)
                    : WalkTokensBack(in, head, initial, back);
  if (back.grad_in.size() <= kInitial || head.begin > 0) return;
  for (size_t i = 0; i < back.grad_state.size(); ++i)
    back.Add(kInitial, head.StateAt() + static_cast<int64_t>(i), back.grad_state[i]);
}

Dims StateDims(const Dims& k, const Dims& v) {
  Dims state(v.begin() + 1, v.end());
  state.insert(state.end() - 1, Plain(Dim::kKeyEntry, k.back().extent()));
  return state;
}

bool SameExceptLast(const Dims& dims, const Dims& expected, size_t leading) {
  return dims.size() >= leading &&
         std::equal(expected.begin(), expected.begin() + leading, dims.begin());
}

// Of the operands by their places in Operand.
absl::Status CheckDeltaRule(std::string_view name, std::span<const Dims> operands,
                            const DeltaRuleOptions& options) {
  const Dims& k = operands[kK];
  const Dims& v = operands[kV];
  if (!HasDims(k, {Dim::kSequence, Dim::kBatch, Dim::kKeyHead, Dim::kHeadDim}))
    return ShapeError(name, "k", k, "[s, b, k, d]");
  if (!HasDims(v, {Dim::kSequence, Dim::kBatch, Dim::kKeyHead, Dim::kValueInKey, Dim::kHeadDim}) ||
      !SameExceptLast(v, k, 3)) {
    return ShapeError(name, "v", v,
                      absl::StrCat("[s, b, k, j, d] with s, b and k of k = ", Describe(k)));
  }
  for (const size_t i : {kG, kBeta}) {
    if (operands[i] != WithoutLast(v)) {
      return ShapeError(name, i == kG ? "g" : "beta", operands[i],
                        absl::StrCat(Describe(WithoutLast(v)), ", the heads of v"));
    }
  }
  if (operands.size() > kInitial && operands[kInitial] != StateDims(k, v))
    return ShapeError(name, "initial", operands[kInitial], Describe(StateDims(k, v)));
  return CheckStarts(name, options.starts, v[0].extent());
}

// DeltaState's operands with an empty q in front, as the walks want them.
template <typename T>
std::vector<T> WithoutQuery(std::span<const T> operands) {
  std::vector<T> all(1);
  all.insert(all.end(), operands.begin(), operands.end());
  return all;
}

}  // namespace

absl::StatusOr<Declaration> DeltaRuleOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 5 || operands.size() == 6);
  SUMONCE_RETURN_IF_ERROR(CheckDeltaRule(name(), operands, options_));
  if (operands[kQ] != operands[kK]) {
    return ShapeError(name(), "q", operands[kQ], absl::StrCat(Describe(operands[kK]), " as k"));
  }
  return Declaration{.result = operands[kV],
                     .linear = operands.size() == 5 ? Linear(kQ, kV) : Linear(kQ),
                     .mixes = SetOf(Dim::kSequence, Dim::kHeadDim, Dim::kKeyEntry)};
}

void DeltaRuleOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  ForEachDeltaHead(in, options_, [&](const Head& head) {
    std::vector<double> state = InitialOf(in, head);
    Walk(in, options_, head, state, out.data());
  });
}

void DeltaRuleOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                                  std::span<Tensor> grad_in) const {
  ForEachDeltaHead(in, options_, [&](const Head& head) {
    Back back{.grad_o = grad_out.data(),
              .grad_state = std::vector<double>(head.dk * head.dv),
              .grad_in = grad_in};
    WalkBack(in, options_, head, back);
  });
}

Value DeltaRule(Tape& tape, const DeltaRuleInputs& inputs, DeltaRuleOptions options) {
  std::vector<Value> operands = {inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta};
  if (inputs.initial.valid()) operands.push_back(inputs.initial);
  return tape.Run(std::make_shared<DeltaRuleOperation>(std::move(options)), std::move(operands));
}

absl::StatusOr<Declaration> DeltaStateOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 4 || operands.size() == 5);
  const std::vector<Dims> all = WithoutQuery(operands);
  SUMONCE_RETURN_IF_ERROR(CheckDeltaRule(name(), all, options_));
  return Declaration{.result = StateDims(all[kK], all[kV]),
                     .linear = operands.size() == 4 ? Linear(kV - 1) : 0,
                     .mixes = SetOf(Dim::kSequence, Dim::kHeadDim, Dim::kKeyEntry)};
}

// Of packed sequences the last one's: the walks write them in order.
void DeltaStateOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const std::vector<Tensor> all = WithoutQuery(in);
  ForEachDeltaHead(all, options_, [&](const Head& head) {
    std::vector<double> state = InitialOf(all, head);
    Walk(all, options_, head, state, nullptr);
    std::copy(state.begin(), state.end(), out.data() + head.StateAt());
  });
}

void DeltaStateOperation::Backward(std::span<const Tensor> in, const Tensor&,
                                   const Tensor& grad_out, std::span<Tensor> grad_in) const {
  const std::vector<Tensor> all = WithoutQuery(in);
  std::vector<Tensor> grads = WithoutQuery(std::span<const Tensor>(grad_in));  // shares elements
  const int64_t tokens = all[kV].dims()[0].extent();
  ForEachDeltaHead(all, options_, [&](const Head& head) {
    if (head.end < tokens) return;
    const double* state = grad_out.data() + head.StateAt();
    Back back{.grad_state = {state, state + head.dk * head.dv}, .grad_in = grads};
    WalkBack(all, options_, head, back);
  });
}

Value DeltaState(Tape& tape, const DeltaRuleInputs& inputs, DeltaRuleOptions options) {
  std::vector<Value> operands = {inputs.k, inputs.v, inputs.g, inputs.beta};
  if (inputs.initial.valid()) operands.push_back(inputs.initial);
  return tape.Run(std::make_shared<DeltaStateOperation>(std::move(options)), std::move(operands));
}

void RegisterDeltaRule(OperationRegistry& registry) {
  const Dims gates = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kKeyHead, 6),
                      Plain(Dim::kValueInKey, 6)};
  const Dims q = {gates[0], gates[1], gates[2], Plain(Dim::kHeadDim, 6)};
  const Dims v = {gates[0], gates[1], gates[2], gates[3], Plain(Dim::kHeadDim, 12)};
  // One key head and one value head: the other forms are alike in them.
  const Dims one = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kKeyHead, 1),
                    Plain(Dim::kValueInKey, 1)};
  const Dims k1 = {one[0], one[1], one[2], Plain(Dim::kHeadDim, 2)};
  const Dims v1 = {one[0], one[1], one[2], one[3], Plain(Dim::kHeadDim, 6)};
  const Dims state = StateDims(k1, v1);
  const auto example = [](auto operation, std::vector<Dims> operands) {
    return OperationExample{.operation = std::move(operation),
                            .operands = std::move(operands),
                            .low = -0.5,
                            .high = 0.5};
  };
  const auto rule = [](DeltaRuleOptions options) {
    return std::make_shared<DeltaRuleOperation>(std::move(options));
  };
  const auto last = [](DeltaRuleOptions options) {
    return std::make_shared<DeltaStateOperation>(std::move(options));
  };
  registry.Add("DeltaRule",
               {example(rule({}), {q, q, v, gates, gates}),
                example(rule({.chunk = 4}), {k1, k1, v1, one, one, state}),
                example(rule({.starts = {0, 3, 4}}), {k1, k1, v1, one, one, state}),
                example(rule({.starts = {0, 5}, .chunk = 2}), {k1, k1, v1, one, one})});
  registry.Add("DeltaState", {example(last({}), {k1, v1, one, one}),
                              example(last({.chunk = 4}), {k1, v1, one, one, state}),
                              example(last({.starts = {0, 2}}), {k1, v1, one, one})});
}

}  // namespace sumonce

#include "spmd/ops/delta_rule.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"

namespace sumonce {
namespace {

enum Operand : size_t { kQ, kK, kV, kG, kBeta };

// One value head of one sequence: where its numbers lie.
struct DeltaHead {
  int64_t rows;   // key heads of all sequences: from one token to the next
  int64_t row;    // of this head's key head
  int64_t ratio;  // value heads of one key head
  int64_t value;  // this one, 0 <= value < ratio
  int64_t tokens, dk, dv;

  int64_t Key(int64_t t) const { return (t * rows + row) * dk; }
  int64_t Gate(int64_t t) const { return (t * rows + row) * ratio + value; }
  int64_t ValueAt(int64_t t) const { return Gate(t) * dv; }
  double QueryScale() const { return 1.0 / std::sqrt(static_cast<double>(dk)); }
};

template <typename Visit>
void ForEachHead(std::span<const Tensor> in, Visit visit) {
  const Dims& v = in[kV].dims();
  DeltaHead head{.rows = v[1].extent() * v[2].extent(),
                 .ratio = v[3].extent(),
                 .tokens = v[0].extent(),
                 .dk = in[kK].dims()[3].extent(),
                 .dv = v[4].extent()};
  for (head.row = 0; head.row < head.rows; ++head.row) {
    for (head.value = 0; head.value < head.ratio; ++head.value) visit(head);
  }
}

// out[dv] += S^T x, S: [dk, dv].
void AddRead(const double* state, const double* x, const DeltaHead& head, double* out) {
  for (int64_t i = 0; i < head.dk; ++i) {
    for (int64_t j = 0; j < head.dv; ++j) out[j] += state[i * head.dv + j] * x[i];
  }
}

// S += factor x y^T.
void AddOuter(double factor, const double* x, const double* y, const DeltaHead& head,
              double* state) {
  for (int64_t i = 0; i < head.dk; ++i) {
    for (int64_t j = 0; j < head.dv; ++j) state[i * head.dv + j] += factor * x[i] * y[j];
  }
}

// sum_j S[i, j] y[j]
double Row(const double* state, int64_t i, const double* y, const DeltaHead& head) {
  double sum = 0.0;
  for (int64_t j = 0; j < head.dv; ++j) sum += state[i * head.dv + j] * y[j];
  return sum;
}

// The state of one token: decayed, the error v - S'^T k, and after the write.
struct Step {
  std::vector<double> decayed, error, state;

  explicit Step(const DeltaHead& head)
      : decayed(head.dk * head.dv), error(head.dv), state(head.dk * head.dv) {}

  // From the state before the token, which may be this step's own.
  void Advance(std::span<const Tensor> in, const DeltaHead& head, int64_t t,
               const std::vector<double>& before) {
    const double alpha = Exp(in[kG].data()[head.Gate(t)]);
    const double* k = in[kK].data() + head.Key(t);
    for (size_t i = 0; i < before.size(); ++i) decayed[i] = alpha * before[i];
    std::fill(error.begin(), error.end(), 0.0);
    AddRead(decayed.data(), k, head, error.data());
    for (int64_t j = 0; j < head.dv; ++j) error[j] = in[kV].data()[head.ValueAt(t) + j] - error[j];
    state = decayed;
    AddOuter(in[kBeta].data()[head.Gate(t)], k, error.data(), head, state.data());
  }
};

void AddTo(Tensor& grad, int64_t i, double term) {
  if (!grad.empty()) grad.data()[i] += term;
}

// One token of the reverse sweep. `grad_state` is dL/dS after the token on entry and before it on
// return.
//   grad_S += q grad_o^T / sqrt(dk);  grad_v = beta grad_S^T k;  grad_k = grad_S u - S' grad_v;
//   grad_S' = grad_S - k grad_v^T;  grad_g = <grad_S', S'>;  before the token: e^g grad_S'.
void StepBack(std::span<const Tensor> in, const DeltaHead& head, int64_t t, const Step& step,
              const double* grad_o, std::vector<double>& grad_state, std::span<Tensor> grad_in) {
  const double* k = in[kK].data() + head.Key(t);
  const double beta = in[kBeta].data()[head.Gate(t)];
  AddOuter(head.QueryScale(), in[kQ].data() + head.Key(t), grad_o, head, grad_state.data());
  std::vector<double> grad_v(head.dv, 0.0);
  AddRead(grad_state.data(), k, head,
          grad_v.data());  // the gradient of u, until it is scaled below
  for (int64_t j = 0; j < head.dv; ++j) {
    AddTo(grad_in[kBeta], head.Gate(t), grad_v[j] * step.error[j]);
    grad_v[j] *= beta;
    AddTo(grad_in[kV], head.ValueAt(t) + j, grad_v[j]);
  }
  for (int64_t i = 0; i < head.dk; ++i) {
    AddTo(grad_in[kQ], head.Key(t) + i,
          head.QueryScale() * Row(step.state.data(), i, grad_o, head));
    AddTo(grad_in[kK], head.Key(t) + i,
          beta * Row(grad_state.data(), i, step.error.data(), head) -
              Row(step.decayed.data(), i, grad_v.data(), head));
  }
  AddOuter(-1.0, k, grad_v.data(), head, grad_state.data());
  double grad_g = 0.0;
  for (size_t i = 0; i < grad_state.size(); ++i) grad_g += grad_state[i] * step.decayed[i];
  AddTo(grad_in[kG], head.Gate(t), grad_g);
  const double alpha = Exp(in[kG].data()[head.Gate(t)]);
  for (double& entry : grad_state) entry *= alpha;
}

bool SameExceptLast(const Dims& dims, const Dims& expected, size_t leading) {
  return dims.size() >= leading &&
         std::equal(expected.begin(), expected.begin() + leading, dims.begin());
}

}  // namespace

absl::StatusOr<Declaration> DeltaRuleOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 5);
  const Dims& q = operands[kQ];
  const Dims& v = operands[kV];
  if (!HasDims(q, {Dim::kSequence, Dim::kBatch, Dim::kKeyHead, Dim::kHeadDim})) {
    return ShapeError(name(), "q", q, "[s, b, k, d]");
  }
  if (operands[kK] != q)
    return ShapeError(name(), "k", operands[kK], absl::StrCat(Describe(q), " as q"));
  if (!HasDims(v, {Dim::kSequence, Dim::kBatch, Dim::kKeyHead, Dim::kValueInKey, Dim::kHeadDim}) ||
      !SameExceptLast(v, q, 3)) {
    return ShapeError(name(), "v", v,
                      absl::StrCat("[s, b, k, j, d] with s, b and k of q = ", Describe(q)));
  }
  for (const size_t i : {kG, kBeta}) {
    if (operands[i] != WithoutLast(v)) {
      return ShapeError(name(), i == kG ? "g" : "beta", operands[i],
                        absl::StrCat(Describe(WithoutLast(v)), ", the heads of v"));
    }
  }
  return Declaration{
      .result = v, .linear = Linear(kQ, kV), .mixes = SetOf(Dim::kSequence, Dim::kHeadDim)};
}

void DeltaRuleOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  ForEachHead(in, [&](const DeltaHead& head) {
    Step step(head);
    for (int64_t t = 0; t < head.tokens; ++t) {
      step.Advance(in, head, t, step.state);
      double* o = out.data() + head.ValueAt(t);
      AddRead(step.state.data(), in[kQ].data() + head.Key(t), head, o);
      for (int64_t j = 0; j < head.dv; ++j) o[j] *= head.QueryScale();
    }
  });
}

void DeltaRuleOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                                  std::span<Tensor> grad_in) const {
  ForEachHead(in, [&](const DeltaHead& head) {
    std::vector<Step> steps(head.tokens, Step(head));
    const std::vector<double> zero(head.dk * head.dv);
    for (int64_t t = 0; t < head.tokens; ++t)
      steps[t].Advance(in, head, t, t == 0 ? zero : steps[t - 1].state);
    std::vector<double> grad_state(head.dk * head.dv, 0.0);
    for (int64_t t = head.tokens; t-- > 0;) {
      StepBack(in, head, t, steps[t], grad_out.data() + head.ValueAt(t), grad_state, grad_in);
    }
  });
}

Value DeltaRule(Tape& tape, Value q, Value k, Value v, Value g, Value beta) {
  return tape.Run(std::make_shared<DeltaRuleOperation>(), {q, k, v, g, beta});
}

void RegisterDeltaRule(OperationRegistry& registry) {
  const Dims gates = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kKeyHead, 6),
                      Plain(Dim::kValueInKey, 6)};
  const Dims q = {gates[0], gates[1], gates[2], Plain(Dim::kHeadDim, 6)};
  const Dims v = {gates[0], gates[1], gates[2], gates[3], Plain(Dim::kHeadDim, 12)};
  registry.Add("DeltaRule", {{.operation = std::make_shared<DeltaRuleOperation>(),
                              .operands = {q, q, v, gates, gates},
                              .low = -0.5,
                              .high = 0.5}});
}

}  // namespace sumonce

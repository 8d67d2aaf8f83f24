// Token by token.
#include <algorithm>

#include "base/math.h"
#include "spmd/delta_rule/head.h"

namespace sumonce::delta_rule {
namespace {

// out[dv] += S^T x, S: [dk, dv].
void AddRead(const double* state, const double* x, const Head& head, double* out) {
  for (int64_t i = 0; i < head.dk; ++i) {
    for (int64_t j = 0; j < head.dv; ++j) out[j] += state[i * head.dv + j] * x[i];
  }
}

// S += factor x y^T.
void AddOuter(double factor, const double* x, const double* y, const Head& head, double* state) {
  for (int64_t i = 0; i < head.dk; ++i) {
    for (int64_t j = 0; j < head.dv; ++j) state[i * head.dv + j] += factor * x[i] * y[j];
  }
}

// sum_j S[i, j] y[j]
double Row(const double* state, int64_t i, const double* y, const Head& head) {
  double sum = 0.0;
  for (int64_t j = 0; j < head.dv; ++j) sum += state[i * head.dv + j] * y[j];
  return sum;
}

// The state of one token: decayed, the error v - S'^T k, and after the write.
struct Step {
  std::vector<double> decayed, error, state;

  explicit Step(const Head& head)
      : decayed(head.dk * head.dv), error(head.dv), state(head.dk * head.dv) {}

  // From the state before the token, which may be this step's own.
  void Advance(std::span<const Tensor> in, const Head& head, int64_t t,
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

// What o's gradient at a token gives to q, and to the state after the write.
void ReadBack(std::span<const Tensor> in, const Head& head, int64_t t, const Step& step,
              Back& back) {
  const double* grad_o = back.grad_o + head.ValueAt(t);
  AddOuter(head.QueryScale(), in[kQ].data() + head.Key(t), grad_o, head, back.grad_state.data());
  for (int64_t i = 0; i < head.dk; ++i)
    back.Add(kQ, head.Key(t) + i, head.QueryScale() * Row(step.state.data(), i, grad_o, head));
}

// One token of the reverse sweep. `grad_state` is dL/dS after the token on entry and before it on
// return.
//   grad_S += q grad_o^T / sqrt(dk);  grad_v = beta grad_S^T k;  grad_k = grad_S u - S' grad_v;
//   grad_S' = grad_S - k grad_v^T;  grad_g = <grad_S', S'>;  before the token: e^g grad_S'.
void StepBack(std::span<const Tensor> in, const Head& head, int64_t t, const Step& step,
              Back& back) {
  const double* k = in[kK].data() + head.Key(t);
  const double beta = in[kBeta].data()[head.Gate(t)];
  if (back.grad_o) ReadBack(in, head, t, step, back);
  std::vector<double> grad_v(head.dv, 0.0);
  AddRead(back.grad_state.data(), k, head,
          grad_v.data());  // the gradient of u, until it is scaled below
  for (int64_t j = 0; j < head.dv; ++j) {
    back.Add(kBeta, head.Gate(t), grad_v[j] * step.error[j]);
    grad_v[j] *= beta;
    back.Add(kV, head.ValueAt(t) + j, grad_v[j]);
  }
  for (int64_t i = 0; i < head.dk; ++i) {
    back.Add(kK, head.Key(t) + i,
             beta * Row(back.grad_state.data(), i, step.error.data(), head) -
                 Row(step.decayed.data(), i, grad_v.data(), head));
  }
  AddOuter(-1.0, k, grad_v.data(), head, back.grad_state.data());
  double grad_g = 0.0;
  for (size_t i = 0; i < back.grad_state.size(); ++i)
    grad_g += back.grad_state[i] * step.decayed[i];
  back.Add(kG, head.Gate(t), grad_g);
  const double alpha = Exp(in[kG].data()[head.Gate(t)]);
  for (double& entry : back.grad_state) entry *= alpha;
}

}  // namespace

void WalkTokens(std::span<const Tensor> in, const Head& head, std::vector<double>& state,
                double* o) {
  Step step(head);
  step.state = state;
  for (int64_t t = head.begin; t < head.end; ++t) {
    step.Advance(in, head, t, step.state);
    if (!o) continue;
    double* read = o + head.ValueAt(t);
    AddRead(step.state.data(), in[kQ].data() + head.Key(t), head, read);
    for (int64_t j = 0; j < head.dv; ++j) read[j] *= head.QueryScale();
  }
  state = step.state;
}

void WalkTokensBack(std::span<const Tensor> in, const Head& head,
                    const std::vector<double>& initial, Back& back) {
  std::vector<Step> steps(head.end - head.begin, Step(head));
  for (int64_t t = head.begin; t < head.end; ++t) {
    const int64_t i = t - head.begin;
    steps[i].Advance(in, head, t, i == 0 ? initial : steps[i - 1].state);
  }
  for (int64_t t = head.end; t-- > head.begin;) StepBack(in, head, t, steps[t - head.begin], back);
}

}  // namespace sumonce::delta_rule

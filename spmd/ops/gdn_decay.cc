#include "spmd/ops/gdn_decay.h"

#include "base/math.h"

namespace sumonce {
namespace {

double SoftplusGrad(double x) { return x > 20.0 ? 1.0 : Sigmoid(x); }

}  // namespace

absl::StatusOr<Declaration> GdnDecayOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 3);
  const Dims& a = operands[0];
  if (!HasDims(a, {Dim::kSequence, Dim::kBatch, Dim::kKeyHead, Dim::kValueInKey})) {
    return ShapeError(name(), "a", a, "[s, b, k, j]");
  }
  for (const size_t i : {1, 2}) {
    if (operands[i] != LastOf(a, 2)) {
      return ShapeError(name(), i == 1 ? "A_log" : "dt_bias", operands[i],
                        absl::StrCat(Describe(LastOf(a, 2)), ", the heads of a"));
    }
  }
  return Declaration{.result = a};
}

void GdnDecayOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t heads = in[1].count();
  for (int64_t i = 0; i < out.count(); ++i) {
    const int64_t head = i % heads;
    out.data()[i] = -Exp(in[1].data()[head]) * Softplus(in[0].data()[i] + in[2].data()[head]);
  }
}

void GdnDecayOperation::Backward(std::span<const Tensor> in, const Tensor& out,
                                 const Tensor& grad_out, std::span<Tensor> grad_in) const {
  const int64_t heads = in[1].count();
  for (int64_t i = 0; i < out.count(); ++i) {
    const int64_t head = i % heads;
    const double grad_g = grad_out.data()[i];
    const double grad_a =
        -grad_g * Exp(in[1].data()[head]) * SoftplusGrad(in[0].data()[i] + in[2].data()[head]);
    if (!grad_in[0].empty()) grad_in[0].data()[i] += grad_a;
    if (!grad_in[1].empty()) grad_in[1].data()[head] += grad_g * out.data()[i];
    if (!grad_in[2].empty()) grad_in[2].data()[head] += grad_a;
  }
}

Value GdnDecay(Tape& tape, Value a, Value A_log, Value dt_bias) {
  return tape.Run(std::make_shared<GdnDecayOperation>(), {a, A_log, dt_bias});
}

void RegisterGdnDecay(OperationRegistry& registry) {
  const Dims heads = {Plain(Dim::kKeyHead, 6), Plain(Dim::kValueInKey, 6)};
  const Dims a = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), heads[0], heads[1]};
  registry.Add("GdnDecay", {{.operation = std::make_shared<GdnDecayOperation>(),
                             .operands = {a, heads, heads}}});
}

}  // namespace sumonce

#include "spmd/ops/causal_conv.h"

#include <algorithm>

namespace sumonce {
namespace {

struct Sizes {
  int64_t tokens, batch, channels, taps;

  explicit Sizes(std::span<const Tensor> in)
      : tokens(in[0].dims()[0].extent()),
        batch(in[0].dims()[1].extent()),
        channels(in[0].dims()[2].extent()),
        taps(in[1].dims()[1].extent()) {}
};

// Calls visit(position of y, position of x, position of the weight) for every product of the
// convolution with a token of x, carried(position of y, of the carried token, of the weight) for
// those with the tokens before the first.
template <typename Visit, typename Carried>
void ForEachProduct(const Sizes& sizes, const SequenceStarts& starts, Visit visit,
                    Carried carried) {
  const int64_t row = sizes.batch * sizes.channels, before = sizes.taps - 1;
  const std::vector<int64_t> begins = BeginOfEach(starts, sizes.tokens);
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    for (int64_t tap = 0; tap < sizes.taps; ++tap) {
      const int64_t from = t - before + tap;
      const bool own = from >= begins[t];
      if (!own && begins[t] > 0) continue;  // of another sequence
      for (int64_t i = 0; i < row; ++i) {
        const int64_t weight = (i % sizes.channels) * sizes.taps + tap;
        if (own) {
          visit(t * row + i, from * row + i, weight);
        } else {
          carried(t * row + i, (before + from) * row + i, weight);
        }
      }
    }
  }
}

}  // namespace

absl::StatusOr<Declaration> CausalConvOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2 || operands.size() == 3);
  const Dims& x = operands[0];
  const Dims& weight = operands[1];
  if (x.size() != 3 || x[0].dim != Dim::kSequence || x[1].dim != Dim::kBatch) {
    return ShapeError(name(), "x", x, "[s, b, channels]");
  }
  if (weight.size() != 2 || weight[0] != x[2] || weight[1].dim != Dim::kTap) {
    return ShapeError(name(), "weight", weight,
                      absl::StrCat("[channels, t] with the channels of x = ", Describe(x)));
  }
  SUMONCE_RETURN_IF_ERROR(CheckStarts(name(), starts_, x[0].extent()));
  Declaration declaration{
      .result = x, .linear = Linear(0, 1), .mixes = SetOf(Dim::kSequence, Dim::kTap)};
  if (operands.size() == 2) return declaration;
  Dims before = x;
  before[0].units = weight[1].extent() - 1;
  if (operands[2] != before)
    return ShapeError(name(), "before", operands[2],
                      absl::StrCat(Describe(before), ", one token a tap but the last"));
  declaration.linear = Linear(1);
  return declaration;
}

void CausalConvOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const double* x = in[0].data();
  const double* weight = in[1].data();
  double* y = out.data();
  ForEachProduct(
      Sizes(in), starts_,
      [&](int64_t to, int64_t from, int64_t tap) { y[to] += weight[tap] * x[from]; },
      [&](int64_t to, int64_t from, int64_t tap) {
        if (in.size() > 2) y[to] += weight[tap] * in[2].data()[from];
      });
}

void CausalConvOperation::Backward(std::span<const Tensor> in, const Tensor&,
                                   const Tensor& grad_out, std::span<Tensor> grad_in) const {
  const double* weight = in[1].data();
  const double* grad_y = grad_out.data();
  const auto product = [&](size_t operand, int64_t to, int64_t from, int64_t tap) {
    if (operand >= in.size()) return;
    if (!grad_in[operand].empty()) grad_in[operand].data()[from] += weight[tap] * grad_y[to];
    if (!grad_in[1].empty()) grad_in[1].data()[tap] += grad_y[to] * in[operand].data()[from];
  };
  ForEachProduct(
      Sizes(in), starts_, [&](int64_t to, int64_t from, int64_t tap) { product(0, to, from, tap); },
      [&](int64_t to, int64_t from, int64_t tap) { product(2, to, from, tap); });
}

Value CausalConv(Tape& tape, Value x, Value weight, SequenceStarts starts, Value before) {
  std::vector<Value> operands = {x, weight};
  if (before.valid()) operands.push_back(before);
  return tape.Run(std::make_shared<CausalConvOperation>(std::move(starts)), std::move(operands));
}

void RegisterCausalConv(OperationRegistry& registry) {
  std::vector<OperationExample> examples;
  for (const Packing packing : {Packing::kUnitMajor, Packing::kPartMajor}) {
    const DimExtent channels = {
        .dim = Dim::kKeyHead, .units = 6, .parts = {2, 1}, .packing = packing};
    examples.push_back({.operation = std::make_shared<CausalConvOperation>(),
                        .operands = {{Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), channels},
                                     {channels, Plain(Dim::kTap, 6)}},
                        .polynomial = true});
  }
  const DimExtent few = Plain(Dim::kKeyHead, 6), taps = Plain(Dim::kTap, 3);
  const DimExtent s = Plain(Dim::kSequence, 6), b = Plain(Dim::kBatch, 2);
  examples.push_back({.operation = std::make_shared<CausalConvOperation>(SequenceStarts{0, 4}),
                      .operands = {{s, b, few}, {few, taps}},
                      .polynomial = true});
  examples.push_back({.operation = std::make_shared<CausalConvOperation>(),
                      .operands = {{s, b, few}, {few, taps}, {Plain(Dim::kSequence, 2), b, few}},
                      .polynomial = true});
  registry.Add("CausalConv", std::move(examples));
}

}  // namespace sumonce

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
// convolution.
template <typename Visit>
void ForEachProduct(const Sizes& sizes, Visit visit) {
  const int64_t row = sizes.batch * sizes.channels;
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    for (int64_t tap = std::max<int64_t>(0, sizes.taps - 1 - t); tap < sizes.taps; ++tap) {
      const int64_t from = t - (sizes.taps - 1) + tap;
      for (int64_t i = 0; i < row; ++i)
        visit(t * row + i, from * row + i, (i % sizes.channels) * sizes.taps + tap);
    }
  }
}

}  // namespace

absl::StatusOr<Declaration> CausalConvOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  const Dims& x = operands[0];
  const Dims& weight = operands[1];
  if (x.size() != 3 || x[0].dim != Dim::kSequence || x[1].dim != Dim::kBatch) {
    return ShapeError(name(), "x", x, "[s, b, channels]");
  }
  if (weight.size() != 2 || weight[0] != x[2] || weight[1].dim != Dim::kTap) {
    return ShapeError(name(), "weight", weight,
                      absl::StrCat("[channels, t] with the channels of x = ", Describe(x)));
  }
  return Declaration{
      .result = x, .linear = Linear(0, 1), .mixes = SetOf(Dim::kSequence, Dim::kTap)};
}

void CausalConvOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const double* x = in[0].data();
  const double* weight = in[1].data();
  double* y = out.data();
  ForEachProduct(Sizes(in),
                 [&](int64_t to, int64_t from, int64_t tap) { y[to] += weight[tap] * x[from]; });
}

void CausalConvOperation::Backward(std::span<const Tensor> in, const Tensor&,
                                   const Tensor& grad_out, std::span<Tensor> grad_in) const {
  const double* x = in[0].data();
  const double* weight = in[1].data();
  const double* grad_y = grad_out.data();
  if (!grad_in[0].empty()) {
    double* grad_x = grad_in[0].data();
    ForEachProduct(Sizes(in), [&](int64_t to, int64_t from, int64_t tap) {
      grad_x[from] += weight[tap] * grad_y[to];
    });
  }
  if (!grad_in[1].empty()) {
    double* grad_weight = grad_in[1].data();
    ForEachProduct(Sizes(in), [&](int64_t to, int64_t from, int64_t tap) {
      grad_weight[tap] += grad_y[to] * x[from];
    });
  }
}

Value CausalConv(Tape& tape, Value x, Value weight) {
  return tape.Run(std::make_shared<CausalConvOperation>(), {x, weight});
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
  registry.Add("CausalConv", std::move(examples));
}

}  // namespace sumonce

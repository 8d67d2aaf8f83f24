#include "spmd/ops/rope.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "base/status.h"

namespace sumonce {
namespace {

struct Tables {
  std::vector<double> cos, sin;  // [positions, rotary_dim]
};

Tables MakeTables(const RopeOptions& options, int64_t positions) {
  if (!options.cos.empty()) return {options.cos, options.sin};
  const int64_t width = options.rotary_dim, half = width / 2;
  Tables tables{std::vector<double>(positions * width), std::vector<double>(positions * width)};
  for (int64_t i = 0; i < half; ++i) {
    const double frequency =
        Pow(options.base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    for (int64_t position = 0; position < positions; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      for (int64_t at : {position * width + i, position * width + half + i}) {
        tables.cos[at] = Cos(angle);
        tables.sin[at] = Sin(angle);
      }
    }
  }
  return tables;
}

// The entries of x that pair i rotates.
std::pair<int64_t, int64_t> PairOf(const RopeOptions& options, int64_t i) {
  if (options.interleaved) return {2 * i, 2 * i + 1};
  return {i, i + options.rotary_dim / 2};
}

// Calls head(cos, sin, offset) for each head of x [s, ..., d].
template <typename Head>
void ForEachHead(const RopeOptions& options, const Dims& dims, Head head) {
  const int64_t positions = dims.front().extent(), width = dims.back().extent();
  const int64_t row = Count(dims) / positions;
  const Tables tables = MakeTables(options, positions);
  const std::vector<int64_t> begins = BeginOfEach(options.starts, positions);
  for (int64_t position = 0; position < positions; ++position) {
    const int64_t at = position - (options.cos.empty() ? begins[position] : 0);
    const double* cos = tables.cos.data() + at * options.rotary_dim;
    const double* sin = tables.sin.data() + at * options.rotary_dim;
    for (int64_t i = 0; i < row; i += width) head(cos, sin, position * row + i);
  }
}

}  // namespace

RopeOperation::RopeOperation(RopeOptions options) : options_(std::move(options)) {
  SUMONCE_CHECK(options_.rotary_dim > 0 && options_.rotary_dim % 2 == 0)
      << "rotary_dim " << options_.rotary_dim;
  SUMONCE_CHECK(options_.cos.size() == options_.sin.size());
}

absl::StatusOr<Declaration> RopeOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const Dims& x = operands[0];
  if (x.size() < 2 || x.front().dim != Dim::kSequence || x.back().dim != Dim::kHeadDim ||
      x.back().extent() < options_.rotary_dim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Rope: x ", Describe(x), " must be [s, ..., d] with d of at least ", options_.rotary_dim));
  }
  const int64_t rows = static_cast<int64_t>(options_.cos.size()) / options_.rotary_dim;
  if (!options_.cos.empty() && rows < x.front().extent()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Rope: x ", Describe(x), " has more positions than the ", rows, " of the given tables"));
  }
  SUMONCE_RETURN_IF_ERROR(CheckStarts("Rope", options_.starts, x.front().extent()));
  Declaration declaration;
  declaration.result = x;
  declaration.linear = Linear(0);
  declaration.mixes = SetOf(Dim::kSequence, Dim::kHeadDim);
  return declaration;
}

void RopeOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t half = options_.rotary_dim / 2, width = out.dims().back().extent();
  ForEachHead(options_, out.dims(), [&](const double* cos, const double* sin, int64_t offset) {
    const double* x = in[0].data() + offset;
    double* y = out.data() + offset;
    for (int64_t i = 0; i < half; ++i) {
      const auto [a, b] = PairOf(options_, i);
      y[i] = x[a] * cos[i] - x[b] * sin[i];
      y[i + half] = x[b] * cos[i + half] + x[a] * sin[i + half];
    }
    std::copy(x + 2 * half, x + width, y + 2 * half);
  });
}

// The rotation by the opposite angle.
void RopeOperation::Backward(std::span<const Tensor>, const Tensor&, const Tensor& grad_out,
                             std::span<Tensor> grad_in) const {
  if (grad_in[0].empty()) return;
  const int64_t half = options_.rotary_dim / 2, width = grad_out.dims().back().extent();
  ForEachHead(options_, grad_out.dims(), [&](const double* cos, const double* sin, int64_t offset) {
    const double* y_grad = grad_out.data() + offset;
    double* x_grad = grad_in[0].data() + offset;
    for (int64_t i = 0; i < half; ++i) {
      const auto [a, b] = PairOf(options_, i);
      x_grad[a] = y_grad[i] * cos[i] + y_grad[i + half] * sin[i + half];
      x_grad[b] = y_grad[i + half] * cos[i + half] - y_grad[i] * sin[i];
    }
    std::copy(y_grad + 2 * half, y_grad + width, x_grad + 2 * half);
  });
}

Value Rope(Tape& tape, Value x, RopeOptions options) {
  return tape.Run(std::make_shared<RopeOperation>(std::move(options)), {x});
}

void RegisterRope(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), g = Plain(Dim::kGroup, 6),
                  d = Plain(Dim::kHeadDim, 6);
  RopeOptions whole, partial, given, interleaved, packed;
  whole.rotary_dim = 6;
  partial.rotary_dim = 2;
  partial.base = 100.0;
  given.rotary_dim = 2;
  given.cos = {1, 1, 2, 3, 0, 1, -1, 2, 2, 1, 1, -2};  // small integers: no rotation, but exact
  given.sin = {0, 1, 1, 1, -2, 1, 3, 0, 1, 2, -1, 1};
  packed.rotary_dim = 6;
  packed.starts = {0, 4};
  interleaved.rotary_dim = 6;
  interleaved.interleaved = true;
  const auto rope = [](RopeOptions options) {
    return std::make_shared<RopeOperation>(std::move(options));
  };
  registry.Add("Rope", {{rope(whole), {{s, g, d}}},
                        {rope(partial), {{s, g, d}}},
                        {rope(given), {{s, g, d}}, {}, true},
                        {rope(interleaved), {{s, g, d}}},
                        {rope(packed), {{s, g, d}}}});
}

}  // namespace sumonce

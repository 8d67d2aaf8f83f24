#include "spmd/ops/concat.h"

#include <vector>

#include "spmd/ops/extents.h"
#include "spmd/ops/shape.h"

namespace sumonce {
namespace {

// A value as rows of what lies from the dimension on.
struct RowsOf {
  RowsOf(const Dims& dims, Dim dim)
      : front(dims.begin(), dims.begin() + Find(dims, dim)),
        back(dims.begin() + Find(dims, dim), dims.end()) {}
  int64_t width() const { return Count(back); }

  Dims front, back;
};

// For each row of a, the row of b that it goes with.
std::vector<int64_t> RowsOfB(const Dims& a, const Dims& b) {
  std::vector<int64_t> rows = {0};
  int64_t stride = Count(b);
  for (const DimExtent& dim : a) {
    const bool shared = Find(b, dim.dim) < 0;
    if (!shared) stride /= dim.extent();
    std::vector<int64_t> next;
    next.reserve(rows.size() * dim.extent());
    for (const int64_t row : rows) {
      for (int64_t i = 0; i < dim.extent(); ++i) next.push_back(row + (shared ? 0 : i * stride));
    }
    rows = std::move(next);
  }
  return rows;
}

// Every dimension of b is one of a's, in a's order.
bool Within(const Dims& b, const Dims& a) {
  size_t at = 0;
  for (const DimExtent& dim : b) {
    while (at < a.size() && !(a[at] == dim)) ++at;
    if (at++ >= a.size()) return false;
  }
  return true;
}

bool SideBySide(const Dims& a, const Dims& b, Dim dim) {
  for (const Dims* dims : {&a, &b}) {
    const int position = Find(*dims, dim);
    if (position < 0 || !(*dims)[position].plain() || (*dims)[position].width() != 1) return false;
  }
  const RowsOf of_a(a, dim), of_b(b, dim);
  return of_a.back.size() == of_b.back.size() &&
         std::equal(of_a.back.begin() + 1, of_a.back.end(), of_b.back.begin() + 1) &&
         Within(of_b.front, of_a.front);
}

}  // namespace

absl::StatusOr<Declaration> ConcatOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  const Dims& a = operands[0];
  const Dims& b = operands[1];
  if (!SideBySide(a, b, dim_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Concat: a ", Describe(a), " and b ", Describe(b), " cannot stand side by side along ",
        ToAbsl(Name(dim_)), ": b must be a but for that extent, or lack dimensions before it"));
  }
  Declaration declaration{.result = a, .mixes = SetOf(dim_)};
  declaration.result[Find(a, dim_)].units += b[Find(b, dim_)].units;
  return declaration;
}

void ConcatOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const RowsOf a(in[0].dims(), dim_), b(in[1].dims(), dim_);
  const std::vector<int64_t> rows = RowsOfB(a.front, b.front);
  double* to = out.data();
  for (size_t i = 0; i < rows.size(); ++i) {
    to = std::copy_n(in[0].data() + i * a.width(), a.width(), to);
    to = std::copy_n(in[1].data() + rows[i] * b.width(), b.width(), to);
  }
}

void ConcatOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                               std::span<Tensor> grad_in) const {
  const RowsOf a(in[0].dims(), dim_), b(in[1].dims(), dim_);
  const std::vector<int64_t> rows = RowsOfB(a.front, b.front);
  for (size_t i = 0; i < rows.size(); ++i) {
    const double* from = grad_out.data() + i * (a.width() + b.width());
    if (!grad_in[0].empty()) std::copy_n(from, a.width(), grad_in[0].data() + i * a.width());
    if (grad_in[1].empty()) continue;
    double* to = grad_in[1].data() + rows[i] * b.width();
    for (int64_t j = 0; j < b.width(); ++j) to[j] += from[a.width() + j];
  }
}

Value Concat(Tape& tape, Value a, Value b, Dim dim) {
  return tape.Run(std::make_shared<ConcatOperation>(dim), {a, b});
}

void RegisterConcat(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), g = Plain(Dim::kGroup, 6);
  const DimExtent d = Plain(Dim::kHeadDim, 6);
  const auto heads = std::make_shared<ConcatOperation>(Dim::kHeadDim);
  const auto tokens = std::make_shared<ConcatOperation>(Dim::kSequence);
  registry.Add("Concat",
               {{heads, {{s, g, d}, {s, d}}, {}, true}, {tokens, {{s, g}, {s, g}}, {}, true}});
}

}  // namespace sumonce

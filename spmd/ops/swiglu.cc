#include "spmd/ops/swiglu.h"

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "base/status.h"
#include "spmd/ops/extents.h"

namespace sumonce {
namespace {

// Calls element(gate, up, y): offsets into x and into the result.
template <typename Element>
void ForEachElement(const Dims& x, const Dims& y, Dim dim, Element element) {
  const int position = Find(x, dim);
  const DimExtent& fused = x[position];
  const DimExtent& plain = y[position];
  const auto [outer, inner] = ExtentsAround(x, position);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t unit = 0; unit < fused.units; ++unit) {
      for (int64_t i = 0; i < plain.width(); ++i) {
        const int64_t gate = (o * fused.extent() + fused.Index(unit, 0, i)) * inner;
        const int64_t up = (o * fused.extent() + fused.Index(unit, 1, i)) * inner;
        const int64_t out = (o * plain.extent() + plain.Index(unit, 0, i)) * inner;
        for (int64_t k = 0; k < inner; ++k) element(gate + k, up + k, out + k);
      }
    }
  }
}

}  // namespace

absl::StatusOr<Declaration> SwigluOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const int position = Find(operands[0], dim_);
  if (position < 0 || operands[0][position].parts.size() != 2 ||
      operands[0][position].parts[0] != operands[0][position].parts[1]) {
    return absl::InvalidArgumentError(absl::StrCat("Swiglu: x ", Describe(operands[0]),
                                                   " must have ", ToAbsl(Name(dim_)),
                                                   " with two equal parts, gate and up"));
  }
  Declaration declaration;
  declaration.result = operands[0];
  declaration.result[position].parts.pop_back();
  declaration.result[position].packing = Packing::kUnitMajor;
  return declaration;
}

void SwigluOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const double* x = in[0].data();
  ForEachElement(in[0].dims(), out.dims(), dim_, [&](int64_t gate, int64_t up, int64_t y) {
    out.data()[y] = Silu(x[gate]) * x[up];
  });
}

void SwigluOperation::Backward(std::span<const Tensor> in, const Tensor& out,
                               const Tensor& grad_out, std::span<Tensor> grad_in) const {
  if (grad_in[0].empty()) return;
  const double* x = in[0].data();
  double* x_grad = grad_in[0].data();
  ForEachElement(in[0].dims(), out.dims(), dim_, [&](int64_t gate, int64_t up, int64_t y) {
    x_grad[gate] = grad_out.data()[y] * x[up] * SiluGrad(x[gate]);
    x_grad[up] = grad_out.data()[y] * Silu(x[gate]);
  });
}

Value Swiglu(Tape& tape, Value x, Dim dim) {
  return tape.Run(std::make_shared<SwigluOperation>(dim), {x});
}

void RegisterSwiglu(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6);
  const DimExtent part_major = {Dim::kFfn, 6, {1, 1}, Packing::kPartMajor};
  const DimExtent unit_major = {Dim::kFfn, 6, {2, 2}, Packing::kUnitMajor};
  const auto swiglu = std::make_shared<SwigluOperation>(Dim::kFfn);
  registry.Add("Swiglu", {{swiglu, {{s, part_major}}}, {swiglu, {{unit_major, s}}}});
}

}  // namespace sumonce

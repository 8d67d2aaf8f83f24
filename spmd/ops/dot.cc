#include "spmd/ops/dot.h"

namespace sumonce {
namespace {

// For every element of `dims`, in order, its position in the result.
std::vector<int64_t> ResultPositions(const Dims& dims, DimSet summed) {
  std::vector<int64_t> positions = {0};
  for (const DimExtent& dim : dims) {
    const int64_t extent = dim.extent();
    const bool kept = !Contains(summed, dim.dim);
    std::vector<int64_t> finer;
    finer.reserve(positions.size() * extent);
    for (const int64_t position : positions) {
      for (int64_t i = 0; i < extent; ++i) finer.push_back(kept ? position * extent + i : position);
    }
    positions = std::move(finer);
  }
  return positions;
}

}  // namespace

absl::StatusOr<Declaration> DotOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  const Dims& a = operands[0];
  if (options_.over == 0 || (options_.over & ~SetOf(a)) != 0) {
    return ShapeError(
        name(), "a", a,
        absl::StrCat("the summed dimensions {", Describe(options_.over), "} among them"));
  }
  if (operands[1] != a)
    return ShapeError(name(), "b", operands[1], absl::StrCat(Describe(a), " as a"));
  Declaration declaration{.linear = Linear(0, 1), .sums = options_.over};
  for (const DimExtent& dim : a) {
    if (!Contains(options_.over, dim.dim)) declaration.result.push_back(dim);
  }
  return declaration;
}

void DotOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const std::vector<int64_t> positions = ResultPositions(in[0].dims(), options_.over);
  for (int64_t i = 0; i < in[0].count(); ++i)
    out.data()[positions[i]] += in[0].data()[i] * in[1].data()[i];
}

void DotOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                            std::span<Tensor> grad_in) const {
  const std::vector<int64_t> positions = ResultPositions(in[0].dims(), options_.over);
  for (int64_t i = 0; i < in[0].count(); ++i) {
    const double grad_y = grad_out.data()[positions[i]];
    if (!grad_in[0].empty()) grad_in[0].data()[i] += grad_y * in[1].data()[i];
    if (!grad_in[1].empty()) grad_in[1].data()[i] += grad_y * in[0].data()[i];
  }
}

Value Dot(Tape& tape, Value a, Value b, const DotOptions& options) {
  return tape.Run(std::make_shared<DotOperation>(options), {a, b});
}

void RegisterDot(OperationRegistry& registry) {
  const Dims a = {Plain(Dim::kSequence, 6), Plain(Dim::kBatch, 6), Plain(Dim::kVocab, 6)};
  const auto dot = [&a](DimSet over) {
    return OperationExample{.operation = std::make_shared<DotOperation>(DotOptions{.over = over}),
                            .operands = {a, a},
                            .polynomial = true};
  };
  registry.Add("Dot",
               {dot(SetOf(Dim::kVocab)), dot(SetOf(Dim::kSequence, Dim::kBatch)), dot(SetOf(a))});
}

}  // namespace sumonce

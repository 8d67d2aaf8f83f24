#include "spmd/ops/unfold.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {

absl::StatusOr<Declaration> UnfoldOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const Dims& x = operands[0];
  const int position = Find(x, options_.dim);
  if (position < 0 || !x[position].plain() || x[position].width() != Count(options_.inner) ||
      (SetOf(x) & SetOf(options_.inner)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Unfold: each unit of ", ToAbsl(Name(options_.dim)), " of x ", Describe(x),
                     " cannot become ", Describe(options_.inner)));
  }
  Declaration declaration;
  declaration.result.assign(x.begin(), x.begin() + position);
  declaration.result.push_back(Plain(options_.dim, x[position].units));
  declaration.result.insert(declaration.result.end(), options_.inner.begin(), options_.inner.end());
  declaration.result.insert(declaration.result.end(), x.begin() + position + 1, x.end());
  declaration.linear = Linear(0);
  return declaration;
}

void UnfoldOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  std::copy_n(in[0].data(), out.count(), out.data());
}

void UnfoldOperation::Backward(std::span<const Tensor>, const Tensor&, const Tensor& grad_out,
                               std::span<Tensor> grad_in) const {
  if (!grad_in[0].empty()) std::copy_n(grad_out.data(), grad_out.count(), grad_in[0].data());
}

Value Unfold(Tape& tape, Value x, UnfoldOptions options) {
  return tape.Run(std::make_shared<UnfoldOperation>(std::move(options)), {x});
}

void RegisterUnfold(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), b = Plain(Dim::kBatch, 2);
  const DimExtent g = {Dim::kGroup, 6, {6}, Packing::kUnitMajor};
  const UnfoldOptions heads = {Dim::kGroup, {Plain(Dim::kHeadInGroup, 3), Plain(Dim::kHeadDim, 2)}};
  const auto unfold = std::make_shared<UnfoldOperation>(heads);
  registry.Add("Unfold", {{unfold, {{s, g}}, {}, true}, {unfold, {{s, g, b}}, {}, true}});
}

}  // namespace sumonce

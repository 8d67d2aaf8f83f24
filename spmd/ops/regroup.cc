#include "spmd/ops/regroup.h"

#include <algorithm>

#include "spmd/ops/shape.h"

namespace sumonce {

absl::StatusOr<Declaration> RegroupOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 1);
  const Dims& x = operands[0];
  const int position = Find(x, options_.from);
  const bool same = position >= 0 && x[position].plain() && x[position].width() == 1 &&
                    x[position].units == options_.to.extent();
  if (!same || Find(x, options_.to.dim) >= 0) {
    return absl::InvalidArgumentError(absl::StrCat("Regroup: ", ToAbsl(Name(options_.from)),
                                                   " of x ", Describe(x), " cannot be read as ",
                                                   Describe(Dims{options_.to})));
  }
  Declaration declaration{.result = x, .linear = Linear(0), .mixes = SetOf(options_.from)};
  declaration.result[position] = options_.to;
  return declaration;
}

void RegroupOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  std::copy_n(in[0].data(), out.count(), out.data());
}

void RegroupOperation::Backward(std::span<const Tensor>, const Tensor&, const Tensor& grad_out,
                                std::span<Tensor> grad_in) const {
  if (!grad_in[0].empty()) std::copy_n(grad_out.data(), grad_out.count(), grad_in[0].data());
}

Value Regroup(Tape& tape, Value x, RegroupOptions options) {
  return tape.Run(std::make_shared<RegroupOperation>(std::move(options)), {x});
}

void RegisterRegroup(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), o = Plain(Dim::kOut, 6);
  const RegroupOptions groups = {.to = {.dim = Dim::kGroup, .units = 2, .parts = {2, 1}}};
  const auto regroup = std::make_shared<RegroupOperation>(groups);
  registry.Add("Regroup", {{regroup, {{s, o}}, {}, true}, {regroup, {{o, s}}, {}, true}});
}

}  // namespace sumonce

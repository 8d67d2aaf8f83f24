#include "spmd/ops/linear.h"

#include "absl/strings/str_cat.h"
#include "base/gemm.h"
#include "base/status.h"
#include "spmd/ops/extents.h"

namespace sumonce {
namespace {

// The product as matrices: x [m, k]; weight [n, k] (trailing) or [k, n].
struct Contraction {
  int64_t m = 1, n = 1, k = 1;
  bool trailing = true;  // the shared dimensions end the weight's
  Dims result;
};

absl::Status Mismatch(const Dims& x, const Dims& weight) {
  return absl::InvalidArgumentError(absl::StrCat(
      "Linear: x ", Describe(x), " and weight ", Describe(weight),
      " do not contract: the dimensions that both have must end x and end or begin the weight, in "
      "the same order, with equal units, parts and packing"));
}

absl::StatusOr<Contraction> Match(const Dims& x, const Dims& weight) {
  Dims shared, out;
  for (const DimExtent& dim : weight) {
    (Find(x, dim.dim) >= 0 ? shared : out).push_back(dim);
  }
  Contraction match;
  match.trailing = EndsWith(weight, shared);
  const bool leading = std::equal(shared.begin(), shared.end(), weight.begin());
  if (shared.empty() || !EndsWith(x, shared) || !(match.trailing || leading)) {
    return Mismatch(x, weight);
  }
  match.result.assign(x.begin(), x.end() - shared.size());
  match.m = Count(match.result);
  match.n = Count(out);
  match.k = Count(shared);
  match.result.insert(match.result.end(), out.begin(), out.end());
  return match;
}

}  // namespace

absl::StatusOr<Declaration> LinearOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  SUMONCE_ASSIGN_OR_RETURN(Contraction match, Match(operands[0], operands[1]));
  Declaration declaration;
  declaration.result = match.result;
  declaration.linear = sumonce::Linear(0, 1);
  declaration.sums = SetOf(operands[0]) & SetOf(operands[1]);
  return declaration;
}

void LinearOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const auto [m, n, k, trailing, result] = *Match(in[0].dims(), in[1].dims());
  Gemm<double>({m, n, k}, Transpose::kNo, in[0].data(), k, Transpose{trailing}, in[1].data(),
               trailing ? k : n, out.data(), n, /*accumulate=*/false);
}

void LinearOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                               std::span<Tensor> grad_in) const {
  const auto [m, n, k, trailing, result] = *Match(in[0].dims(), in[1].dims());
  if (!grad_in[0].empty()) {  // dgrad [m, k] = grad_out [m, n] · weight [n, k]
    Gemm<double>({m, k, n}, Transpose::kNo, grad_out.data(), n, Transpose{!trailing}, in[1].data(),
                 trailing ? k : n, grad_in[0].data(), k, /*accumulate=*/false);
  }
  if (grad_in[1].empty()) return;
  if (trailing) {  // wgrad [n, k] = grad_out^T · x
    Gemm<double>({n, k, m}, Transpose::kYes, grad_out.data(), n, Transpose::kNo, in[0].data(), k,
                 grad_in[1].data(), k, /*accumulate=*/false);
  } else {  // wgrad [k, n] = x^T · grad_out
    Gemm<double>({k, n, m}, Transpose::kYes, in[0].data(), k, Transpose::kNo, grad_out.data(), n,
                 grad_in[1].data(), n, /*accumulate=*/false);
  }
}

Value Linear(Tape& tape, Value x, Value weight) {
  return tape.Run(std::make_shared<LinearOperation>(), {x, weight});
}

void RegisterLinear(OperationRegistry& registry) {
  const auto linear = std::make_shared<LinearOperation>();
  const DimExtent s = Plain(Dim::kSequence, 6), b = Plain(Dim::kBatch, 6),
                  r = Plain(Dim::kLoraRank, 6);
  const DimExtent h = Plain(Dim::kHidden, 6), f = {Dim::kFfn, 6, {1, 1}, Packing::kPartMajor};
  const DimExtent g = {Dim::kGroup, 6, {2}, Packing::kUnitMajor}, d = Plain(Dim::kHeadDim, 2);
  registry.Add("Linear", {
                             {linear, {{s, b, h}, {f, h}}, {}, true},     // column-parallel
                             {linear, {{s, r, h}, {h, b}}, {}, true},     // an embedding's order
                             {linear, {{s, g, d}, {r, g, d}}, {}, true},  // two shared dimensions
                             {linear, {{s, b, r}, {h, r}}, {true, false}, true},  // one-hot tokens
                         });
}

}  // namespace sumonce

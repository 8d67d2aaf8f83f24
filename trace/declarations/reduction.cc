// Sums and maxima over dimensions.
#include "base/status.h"
#include "trace/declaration.h"
#include "trace/declarations/labels.h"

namespace sumonce::trace {
namespace {

LocalRule Reduction(const Call& call, const std::vector<int>& dims, bool keep) {
  const size_t rank = call.shape(0).size();
  LocalRule rule{.operands = {{.position = 0, .labels = Numbered(rank)}}, .result = {}};
  for (size_t d = 0; d < rank; ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), static_cast<int>(d)) != dims.end();
    if (!reduced) rule.result.push_back(static_cast<int>(d));
    if (reduced && keep) rule.result.push_back(kUnnamed);
  }
  return rule;
}

// sum(x), sum.dim_IntList(x, dims, keepdim); mean likewise.
std::vector<LocalRule> Sum(const Call& call, bool mean) {
  const std::vector<int> dims = DimsOf(call, 1, {});
  LocalRule rule = Reduction(call, dims, call.flag(2, false));
  rule.linear = Linear(0);
  rule.sums = LabelsOf(dims);
  const Value value = call.value(0);
  // Into flags: whether any is set.
  if (call.out_dtype() == "bool") {
    rule.linear = 0;
    std::swap(rule.sums, rule.mixes);
  }
  // The mean of a constant is the constant, over a part of a dimension as well.
  if (mean && value.kind == Kind::kUniform) rule.sums = 0;
  // A rank divides by the extent that it holds, not by the whole one.
  const bool over_cut = value.is(Layout::kShard) && Contains(rule.sums, DimAt(value.cut.dim));
  if (mean && over_cut) rule.factor = Scale::SizeOfAxis(kAxis);
  return {rule};
}

// max.dim(x, dim, keepdim): maxima and where they are; amax(x, dims, keepdim).
std::vector<LocalRule> Maximum(const Call& call) {
  const std::vector<int> dims = DimsOf(call, 1, {});
  LocalRule rule = Reduction(call, dims, call.flag(2, false));
  rule.maxima = LabelsOf(dims);
  if (call.outs() < 2) return {rule};
  LocalRule where = rule;
  where.maxima = 0;
  where.mixes = rule.maxima;
  return {rule, where};
}

std::vector<LocalRule> Minimum(const Call& call) {
  const std::vector<int> dims = DimsOf(call, 1, {});
  LocalRule rule = Reduction(call, dims, call.flag(2, false));
  rule.mixes = LabelsOf(dims);
  return std::vector<LocalRule>(static_cast<size_t>(std::max(call.outs(), 1)), rule);
}

}  // namespace

void RegisterReduction(DeclarationTable& table) {
  table.AddLocal("sum", "t", [](const Call& call) { return Sum(call, false); });
  table.AddLocal("mean", "t", [](const Call& call) { return Sum(call, true); });
  table.AddLocal({"max", "amax"}, "t", Maximum);
  table.AddLocal({"min", "amin", "argmax", "argmin", "any", "all"}, "t", Minimum);
}

}  // namespace sumonce::trace

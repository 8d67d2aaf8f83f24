// Operations that need whole dimensions: softmax, norms, cumulative sums, triangles, pads.
#include "base/status.h"
#include "trace/declaration.h"
#include "trace/declarations/labels.h"

namespace sumonce::trace {
namespace {

LocalRule Unrefused(const Call& call, std::initializer_list<int> linear,
                    const std::vector<int>& mixed) {
  LocalRule rule = ElementwiseRule(call, linear);
  rule.mixes = LabelsOf(mixed);
  if (mixed.empty()) rule.refused = kFormUndeclared;
  return rule;
}

// The dimension is argument `position`.
LocalDeclaration Along(int position, std::initializer_list<int> linear) {
  const std::vector<int> at(linear);
  return [=](const Call& call) {
    const std::vector<int> dims = DimsOf(call, position, {-1});
    LocalRule rule = at.empty() ? Unrefused(call, {}, dims) : Unrefused(call, {at[0]}, dims);
    return std::vector<LocalRule>(static_cast<size_t>(std::max(call.outs(), 1)), rule);
  };
}

// sort(x, dim), sort.stable(x, *, stable, dim).
std::vector<LocalRule> Sort(const Call& call) {
  const int rank = static_cast<int>(call.shape(0).size());
  std::vector<int> dims = DimsOf(call, 1, {-1});
  if (const auto dim = call.keyword("dim")) {
    const int given = static_cast<int>(dim->value);
    dims = {given < 0 ? given + rank : given};
    if (dims[0] < 0 || dims[0] >= rank) dims.clear();
  }
  return std::vector<LocalRule>(static_cast<size_t>(std::max(call.outs(), 1)),
                                Unrefused(call, {}, dims));
}

// roll(x, shifts, dims): without dims all entries move, across all of them.
std::vector<LocalRule> Roll(const Call& call) {
  return {Unrefused(call, {0}, DimsOf(call, 2, {}))};
}

// tril, triu: the last two dimensions.
std::vector<LocalRule> Triangle(const Call& call) {
  const int rank = static_cast<int>(call.shape(0).size());
  LocalRule rule = Unrefused(call, {0}, {rank - 2, rank - 1});
  if (rank < 2) rule.refused = kFormUndeclared;
  return {rule};
}

// constant_pad_nd(x, [last before, last after, ...], value).
std::vector<LocalRule> Pad(const Call& call) {
  const std::vector<int64_t> pads = call.integers(1);
  const size_t rank = call.shape(0).size();
  LocalRule rule{.operands = {{.position = 0, .labels = Numbered(rank)}}, .result = Numbered(rank)};
  for (size_t k = 0; k < pads.size(); ++k) {
    if (k / 2 >= rank) {
      rule.refused = kFormUndeclared;
      break;
    }
    if (pads[k] != 0) rule.mixes |= SetOf(DimAt(static_cast<int>(rank - 1 - k / 2)));
  }
  const auto number = call.number(2);
  if (!number || number->value == 0) rule.linear = Linear(0);
  return {rule};
}

// native_layer_norm(x, normalized_shape, weight, bias, eps): y, mean, 1 / deviation.
std::vector<LocalRule> LayerNorm(const Call& call) {
  const size_t rank = call.shape(0).size();
  const size_t normalised = call.integers(1).size();
  LocalRule rule = ElementwiseRule(call, {});
  if (normalised == 0 || normalised > rank) {
    rule.refused = kFormUndeclared;
    return {rule, rule, rule};
  }
  LocalRule statistics{.operands = {{.position = 0, .labels = Numbered(rank)}},
                       .result = Numbered(rank)};
  for (size_t d = rank - normalised; d < rank; ++d) {
    rule.mixes |= SetOf(DimAt(static_cast<int>(d)));
    statistics.result[d] = kUnnamed;
  }
  statistics.mixes = rule.mixes;
  return {rule, statistics, statistics};
}

// native_layer_norm_backward(grad, x, normalized_shape, mean, rstd, weight, bias, mask).
std::vector<LocalRule> LayerNormBackward(const Call& call) {
  const size_t rank = call.shape(1).size();
  const size_t normalised = call.integers(2).size();
  const std::vector<int64_t> wanted = call.integers(7);
  if (normalised == 0 || normalised > rank || call.shape(0).size() != rank) {
    LocalRule rule;
    rule.refused = kFormUndeclared;
    return {rule};
  }
  const int leading = static_cast<int>(rank - normalised);
  Labels statistics = Numbered(rank);
  for (size_t d = leading; d < rank; ++d) statistics[d] = kUnnamed;
  LocalRule input{
      .operands = {{0, Numbered(rank)}, {1, Numbered(rank)}, {3, statistics}, {4, statistics}},
      .result = Numbered(rank),
      .linear = Linear(0)};
  LocalRule parameter = input;
  parameter.result = Numbered(normalised, leading);
  for (int d = 0; d < static_cast<int>(rank); ++d)
    (d < leading ? parameter.sums : parameter.mixes) |= SetOf(DimAt(d));
  input.mixes = parameter.mixes;
  if (call.is_tensor(5)) {
    input.linear |= 1u << input.operands.size();
    input.operands.push_back({5, Numbered(normalised, leading)});
  }
  std::vector<LocalRule> rules;
  for (size_t k = 0; k < wanted.size() && k < 3; ++k) {
    if (wanted[k] != 0) rules.push_back(k == 0 ? input : parameter);
  }
  return rules;
}

}  // namespace

void RegisterMixing(DeclarationTable& table) {
  table.AddLocal({"_softmax", "_log_softmax"}, "t", Along(1, {}));
  table.Add("sort", {.rule = Local(Sort), .form = "t", .keywords = {"dim"}, .local = Sort});
  table.AddLocal("topk", "t", Along(2, {}));
  table.AddLocal({"_softmax_backward_data", "_log_softmax_backward_data"}, "tt", Along(2, {0}));
  table.AddLocal({"cumsum", "flip"}, "t", Along(1, {0}));
  table.AddLocal("roll", "t", Roll);
  table.AddLocal({"tril", "triu"}, "t", Triangle);
  table.AddLocal("constant_pad_nd", "tl", Pad);
  table.AddLocal("native_layer_norm", "tl", LayerNorm);
  table.AddLocal("native_layer_norm_backward", "ttltt", LayerNormBackward);
}

}  // namespace sumonce::trace

#include "trace/declarations/labels.h"

#include "base/status.h"

namespace sumonce::trace {

Labels Numbered(size_t rank, int from) {
  Labels labels;
  for (size_t d = 0; d < rank; ++d) labels.push_back(from + static_cast<int>(d));
  return labels;
}

LocalRule ElementwiseRule(const Call& call, std::initializer_list<int> linear) {
  LocalRule rule;
  const Extents& out = call.out_shape(0);
  for (int position = 0; position < static_cast<int>(call.operation().args.size()); ++position) {
    if (!call.is_tensor(position)) continue;
    const Extents& shape = call.shape(position);
    if (shape.size() > out.size()) {
      rule.refused = kFormUndeclared;
      return rule;
    }
    Labels labels = Numbered(shape.size(), static_cast<int>(out.size() - shape.size()));
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1 && out[labels[d]] != 1) labels[d] = kUnnamed;
    }
    for (const int at : linear) {
      if (at == position) rule.linear |= 1u << rule.operands.size();
    }
    rule.operands.push_back({.position = position, .labels = labels});
  }
  rule.result = Numbered(out.size());
  return rule;
}

LocalDeclaration Elementwise(std::initializer_list<int> linear) {
  return [linear = std::vector<int>(linear)](const Call& call) {
    LocalRule rule = ElementwiseRule(call, {});
    for (size_t i = 0; i < rule.operands.size(); ++i) {
      for (const int at : linear) {
        if (rule.operands[i].position == at) rule.linear |= 1u << i;
      }
    }
    return std::vector<LocalRule>(static_cast<size_t>(std::max(call.outs(), 1)), rule);
  };
}

std::vector<int> DimsOf(const Call& call, int position, std::initializer_list<int64_t> absent) {
  const int rank = static_cast<int>(call.shape(0).size());
  std::vector<int64_t> given = call.integers(position);
  if (given.empty() && call.is_number(position)) given.push_back(call.integer(position, 0));
  if (given.empty()) given.assign(absent.begin(), absent.end());
  std::vector<int> dims;
  for (const int64_t dim : given) {
    const int64_t counted = dim < 0 ? dim + rank : dim;
    if (counted >= 0 && counted < rank) dims.push_back(static_cast<int>(counted));
  }
  if (given.empty()) {
    for (int d = 0; d < rank; ++d) dims.push_back(d);
  }
  return dims;
}

DimSet LabelsOf(const std::vector<int>& dims) {
  DimSet set = 0;
  for (const int dim : dims) set |= SetOf(DimAt(dim));
  return set;
}

LocalRule Lettered(const std::vector<int>& positions, std::string_view letters, uint32_t linear,
                   std::string_view sums, std::string_view mixes) {
  LocalRule rule{.operands = {}, .result = {}, .linear = linear};
  const size_t arrow = letters.find("->");
  SUMONCE_CHECK(arrow != std::string_view::npos) << letters;
  Labels labels;
  for (const char letter : letters.substr(0, arrow)) {
    if (letter == ',') {
      rule.operands.push_back({.position = positions[rule.operands.size()], .labels = labels});
      labels.clear();
    } else {
      labels.push_back(letter == '.' ? kUnnamed : letter - 'a');
    }
  }
  rule.operands.push_back({.position = positions[rule.operands.size()], .labels = labels});
  for (const char letter : letters.substr(arrow + 2))
    rule.result.push_back(letter == '.' ? kUnnamed : letter - 'a');
  for (const char letter : sums) rule.sums |= SetOf(DimAt(letter - 'a'));
  for (const char letter : mixes) rule.mixes |= SetOf(DimAt(letter - 'a'));
  return rule;
}

LocalRule UndeclaredForm() {
  LocalRule rule;
  rule.refused = kFormUndeclared;
  return rule;
}

}  // namespace sumonce::trace

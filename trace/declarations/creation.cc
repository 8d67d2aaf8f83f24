// Tensors out of nothing.
#include "base/status.h"
#include "trace/declaration.h"

namespace sumonce::trace {
namespace {

Rule Filled(std::optional<double> number) {
  return [=](const Call&) { return std::vector<Value>{UniformValue(number)}; };
}

// The filling number is argument `position`.
Rule FilledWith(int position) {
  return [=](const Call& call) -> std::vector<Value> {
    const auto number = call.number(position);
    if (!number) return {call.Lose(kFormUndeclared)};
    return {UniformValue(number->value)};
  };
}

std::vector<Value> Uninitialised(const Call&) { return {UninitialisedValue()}; }
std::vector<Value> Whole(const Call&) { return {EqualValue()}; }

}  // namespace

void RegisterCreation(DeclarationTable& table) {
  constexpr uint32_t kSizes = 1u << 0, kSizesLater = 1u << 1;
  for (const char* name : {"empty"}) table.Add(name, {.rule = Uninitialised, .may_vary = kSizes});
  table.Add("empty_strided", {.rule = Uninitialised, .may_vary = kSizes | kSizesLater});
  table.Add("new_empty", {.rule = Uninitialised, .form = "t", .may_vary = kSizesLater});
  table.Add("new_empty_strided", {.rule = Uninitialised, .form = "t", .may_vary = 6});
  table.Add("empty_like", {.rule = Uninitialised, .form = "t"});

  table.Add("zeros", {.rule = Filled(0.0), .may_vary = kSizes});
  table.Add("ones", {.rule = Filled(1.0), .may_vary = kSizes});
  table.Add("full", {.rule = FilledWith(1), .form = ".n", .may_vary = kSizes});
  table.Add("scalar_tensor", {.rule = FilledWith(0), .form = "n"});
  table.Add("new_zeros", {.rule = Filled(0.0), .form = "t", .may_vary = kSizesLater});
  table.Add("new_ones", {.rule = Filled(1.0), .form = "t", .may_vary = kSizesLater});
  table.Add("new_full", {.rule = FilledWith(2), .form = "t.n", .may_vary = kSizesLater});
  table.Add("zeros_like", {.rule = Filled(0.0), .form = "t"});
  table.Add("ones_like", {.rule = Filled(1.0), .form = "t"});
  table.Add("full_like", {.rule = FilledWith(1), .form = "tn"});
  table.Add("zero", {.rule = Filled(0.0), .form = "t"});
  table.Add("fill", {.rule = FilledWith(1), .form = "tn"});

  // The same on every rank, if the extents are.
  for (const char* name : {"arange", "eye"}) table.Add(name, {.rule = Whole, .form = "n"});
}

}  // namespace sumonce::trace

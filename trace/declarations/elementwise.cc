// Operations that work element by element: additions, products, linear and nonlinear functions,
// derivatives.
#include "base/status.h"
#include "trace/declaration.h"
#include "trace/declarations/labels.h"
#include "trace/declarations/own_range.h"

namespace sumonce::trace {
namespace {

// a + alpha * b, a - alpha * b. With a number that is not zero it is no linear function any more.
std::vector<LocalRule> Addition(const Call& call) {
  if (call.is_tensor(1)) {
    LocalRule rule = ElementwiseRule(call, {});
    rule.addition = true;
    return {rule};
  }
  const auto number = call.number(1);
  if (number && number->value == 0) return {ElementwiseRule(call, {0})};
  return {ElementwiseRule(call, {})};
}

// Tensors multiply; a number that goes as a power of n is a factor of the state.
std::vector<LocalRule> Scaling(const Call& call, bool divides) {
  LocalRule rule = divides ? ElementwiseRule(call, {0}) : ElementwiseRule(call, {0, 1});
  const auto number = call.number(1);
  const Argument* rounding = call.keyword_argument("rounding_mode");
  if (rounding != nullptr && rounding->kind != Argument::Kind::kNone) {
    const bool varies = number && (!number->of_ranks.empty() || number->value != number->twice);
    rule.linear = 0;
    if (varies) rule.refused = kSizeNumber;
    return {rule};
  }
  if (!number) return {rule};
  const auto power = PowerOf(*number);
  if (!number->of_ranks.empty()) {
    rule.refused = kRankNumber;
  } else if (!power) {
    rule.refused = kSizeNumber;
  } else {
    rule.factor = Scale::SizeOfAxis(kAxis, divides ? -*power : *power);
  }
  return {rule};
}

// Rounding to integers is no linear function, nor is it to ask whether a number is 0.
bool KeepsSums(std::string_view from, std::string_view to) {
  const auto is_floating = [](std::string_view dtype) {
    return dtype.starts_with("float") || dtype.starts_with("bfloat");
  };
  return is_floating(to) || (!is_floating(from) && (to != "bool" || from == "bool"));
}

std::vector<LocalRule> ToCopy(const Call& call) {
  const bool linear = KeepsSums(call.dtype(0), call.out_dtype());
  return {linear ? ElementwiseRule(call, {0}) : ElementwiseRule(call, {})};
}

// Into the first argument, whose own content is of no account.
std::vector<Value> Copy(const Call& call) {
  const Value source = call.value(1);
  if (!source.lost() && Unusable(source) != nullptr) {
    return {call.shape(0) == call.shape(1) ? source : call.Lose(Unusable(source))};
  }
  LocalRule rule = ElementwiseRule(call, {1});
  if (rule.refused != nullptr) return {call.Lose(rule.refused)};
  rule.operands.erase(rule.operands.begin());
  rule.linear = 1;
  if (!KeepsSums(call.dtype(1), call.dtype(0))) rule.linear = 0;
  return {Evaluate(call, rule)};
}

std::vector<LocalRule> MaskedFill(const Call& call) {
  const auto number = call.number(2);
  const bool zero = number && number->value == 0;
  return {zero ? ElementwiseRule(call, {0}) : ElementwiseRule(call, {})};
}

// where(condition, a, b): linear in the one beside zeros.
std::vector<LocalRule> Where(const Call& call) {
  LocalRule rule = ElementwiseRule(call, {});
  if (rule.refused != nullptr || rule.operands.size() != 3) {
    rule.refused = kFormUndeclared;
    return {rule};
  }
  for (const int zeros : {2, 1}) {
    if (!call.value(zeros).is_zero()) continue;
    rule.operands.erase(rule.operands.begin() + zeros);
    rule.linear = Linear(1);
    break;
  }
  return {rule};
}

// The exponent 1 is what an optimised square root of a square leaves.
std::vector<LocalRule> Power(const Call& call) {
  const auto number = call.number(1);
  const bool linear = number && number->value == 1;
  return {linear ? ElementwiseRule(call, {0}) : ElementwiseRule(call, {})};
}

// An operation that may also be one of the own-range chain.
void AddChained(DeclarationTable& table, std::string_view name, std::string_view form,
                const LocalDeclaration& declaration, uint32_t may_vary = 0) {
  table.Add(name, {.rule = OrOwnRange(Local(declaration)),
                   .form = form,
                   .may_vary = may_vary,
                   .local = declaration});
}

}  // namespace

void RegisterElementwise(DeclarationTable& table) {
  constexpr uint32_t kNumber = 1u << 1;
  table.AddLocal("add", "t.", Addition);
  AddChained(table, "sub", "t.", Addition, kNumber);
  AddChained(table, "rsub", "t.", Elementwise({}));
  table.AddLocal(
      "mul", "t.", [](const Call& call) { return Scaling(call, false); }, kNumber);
  const LocalDeclaration quotient = [](const Call& call) { return Scaling(call, true); };
  table.Add("div", {.rule = Local(quotient),
                    .form = "t.",
                    .may_vary = kNumber,
                    .keywords = {"rounding_mode"},
                    .local = quotient});

  table.AddLocal("neg", "t", Elementwise({0}));
  for (const char* name : {"clone", "_to_copy"}) AddChained(table, name, "t", ToCopy);
  table.Add("copy", {.rule = Copy, .form = "tt"});
  AddChained(table, "masked_fill", "ttn", MaskedFill);

  table.AddLocal("where", "ttt", Where);
  table.AddLocal("pow", "tn", Power);
  table.AddLocal({"rsqrt",       "sqrt",       "exp",  "log",         "cos",         "sin",
                  "sigmoid",     "tanh",       "gelu", "silu",        "softplus",    "relu",
                  "abs",         "reciprocal", "erf",  "clamp",       "clamp_min",   "gt",
                  "le",          "eq",         "ne",   "bitwise_and", "bitwise_not", "logical_not",
                  "logical_and", "sgn",        "sign", "maximum",     "minimum"},
                 "t", Elementwise({}));
  for (const char* name : {"lt", "ge"}) AddChained(table, name, "t.", Elementwise({}), kNumber);
  for (const char* name : {"bitwise_or", "logical_or"})
    AddChained(table, name, "tt", Elementwise({}));

  // The derivative at the second argument, times the gradient.
  table.AddLocal({"gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward",
                  "softplus_backward", "threshold_backward"},
                 "tt", Elementwise({0}));
}

}  // namespace sumonce::trace

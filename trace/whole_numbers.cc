#include "trace/whole_numbers.h"

#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "trace/declaration.h"

namespace sumonce::trace {
namespace {

// Operations whose numbers enter the values.
bool IsArithmetic(std::string_view name) {
  static const auto& names = *new std::set<std::string_view>{
      "mul",  "div",     "add",  "sub",   "rsub",      "pow",      "addmm",
      "full", "baddbmm", "fill", "clamp", "full_like", "new_full", "scalar_tensor"};
  return names.contains(name);
}

// Numbers that went through other arithmetic on the way agree to so many digits.
double Rounded(double number) {
  if (number == 0 || !std::isfinite(number)) return number;
  int exponent = 0;
  const double mantissa = std::frexp(number, &exponent);
  return std::ldexp(std::round(std::ldexp(mantissa, 40)), exponent - 40);
}

template <typename Take>
void ForEachNumber(const Operation& operation, const Take& take) {
  if (!IsArithmetic(BaseName(operation.name))) return;
  for (size_t p = 0; p < operation.args.size(); ++p) {
    if (operation.args[p].is_number()) take(operation.args[p].number, static_cast<int>(p));
  }
  for (const auto& [key, argument] : operation.kwargs) {
    if (argument.is_number()) take(argument.number, -1);
  }
}

// By operation's name and number: the operations.
using Uses = std::map<std::pair<std::string_view, double>, std::vector<int>>;

// Zero and one are no factors, and a number of each rank is looked at where it is used.
Uses UsesOf(const Program& program) {
  Uses uses;
  for (int op = 0; op < static_cast<int>(program.ops.size()); ++op) {
    ForEachNumber(program.ops[op], [&](double number, int) {
      if (number != 0 && number != 1)
        uses[{BaseName(program.ops[op].name), Rounded(number)}].push_back(op);
    });
  }
  return uses;
}

// Each divided by the power of n that it goes with.
Uses UsesOf(const Alignment& traces) {
  Uses uses;
  for (int op = 0; op < static_cast<int>(traces.base().ops.size()); ++op) {
    ForEachNumber(traces.base().ops[op], [&](double number, int position) {
      int power = 0;
      if (position >= 0) {
        const NumberRef ref = traces.Number(op, position);
        if (!ref.of_ranks.empty()) return;
        power = PowerOf(ref).value_or(0);
      }
      const double whole = Rounded(number / std::pow(traces.size(), power));
      if (whole != 0 && whole != 1)
        uses[{BaseName(traces.base().ops[op].name), whole}].push_back(op);
    });
  }
  return uses;
}

size_t CountOf(const Uses& uses, const Uses::key_type& key) {
  const auto found = uses.find(key);
  return found == uses.end() ? 0 : found->second.size();
}

}  // namespace

std::set<int> NumbersBeyondWhole(const Alignment& traces) {
  std::set<int> beyond;
  if (!traces.set().whole) return beyond;
  const Uses whole = UsesOf(*traces.set().whole);
  for (const auto& [key, ops] : UsesOf(traces)) {
    if (CountOf(whole, key) < ops.size()) beyond.insert(ops.begin(), ops.end());
  }
  return beyond;
}

// A parameter that the unsharded program lacks: it may be another job's.
std::string OfAnotherJob(const Alignment& traces) {
  std::set<std::string_view> names;
  for (const ParamInfo& param : traces.set().whole->params) names.insert(param.name);
  for (const ParamInfo& param : traces.base().params) {
    if (names.contains(param.name)) continue;
    return absl::StrCat("; it has no parameter ", ToAbsl(param.name),
                        " either: trace the same job unsharded");
  }
  return "";
}

std::string NumberOfWholeAlone(const Alignment& traces) {
  if (!traces.set().whole) return "";
  const Program& whole = *traces.set().whole;
  const Uses sharded = UsesOf(traces);
  for (const auto& [key, ops] : UsesOf(whole)) {
    const size_t count = CountOf(sharded, key);
    if (count >= ops.size()) continue;
    return absl::StrCat("the unsharded program has the number ", key.second, " ", ops.size(),
                        " times, first at ", OperationName(whole, ops.front()),
                        ", the sharded one ", count, " times", OfAnotherJob(traces));
  }
  return "";
}

}  // namespace sumonce::trace

#include "trace/whole_numbers.h"

#include <cmath>
#include <map>

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

struct Use {
  double number;
  int op;
};

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

}  // namespace

std::set<int> NumbersBeyondWhole(const Alignment& traces) {
  std::set<int> beyond;
  if (!traces.set().whole) return beyond;
  std::map<double, int> counts;  // of the unsharded program, less those met
  for (const Operation& operation : traces.set().whole->ops) {
    ForEachNumber(operation, [&](double number, int) { ++counts[Rounded(number)]; });
  }
  std::map<double, std::vector<int>> uses;
  for (int op = 0; op < static_cast<int>(traces.base().ops.size()); ++op) {
    ForEachNumber(traces.base().ops[op], [&](double number, int position) {
      int power = 0;
      if (position >= 0) {
        const NumberRef ref = traces.Number(op, position);
        if (!ref.of_ranks.empty()) return;  // looked at where it is used
        power = PowerOf(ref).value_or(0);
      }
      const double whole = Rounded(number / std::pow(traces.size(), power));
      if (whole != 0 && whole != 1) uses[whole].push_back(op);
    });
  }
  for (const auto& [number, ops] : uses) {
    const auto known = counts.find(number);
    const int count = known == counts.end() ? 0 : known->second;
    if (count < static_cast<int>(ops.size())) beyond.insert(ops.begin(), ops.end());
  }
  return beyond;
}

}  // namespace sumonce::trace

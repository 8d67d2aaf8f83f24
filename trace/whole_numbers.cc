#include "trace/whole_numbers.h"

#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "trace/declaration.h"

namespace sumonce::trace {
namespace {

// Operations whose numbers enter the values, integers too; of others only fractions do.
bool IsArithmetic(std::string_view name) {
  static const auto& names = *new std::set<std::string_view>{
      "mul",  "div",     "add",  "sub",   "rsub",      "pow",      "addmm",
      "full", "baddbmm", "fill", "clamp", "full_like", "new_full", "scalar_tensor"};
  return names.contains(name);
}

// What one fills memory with, in the words of any of these.
std::string_view NameOf(const Operation& operation) {
  const std::string_view name = BaseName(operation.name);
  const bool fills = name == "full" || name == "fill" || name == "full_like" ||
                     name == "new_full" || name == "scalar_tensor" || name == "ones" ||
                     name == "new_ones" || name == "ones_like";
  return fills ? "full" : name;
}

// Factors of 1 and terms of 0 change nothing. A shard is padded with zeros, and masks of own ranges
// are taken from 1, in a sharded program alone.
bool Counts(std::string_view name, double number) {
  if (name == "mul" || name == "div") return number != 1;
  return number != 0 && (number != 1 || name == "add" || name == "full");
}

// Numbers that went through other arithmetic on the way agree to so many digits.
double Rounded(double number) {
  if (number == 0 || !std::isfinite(number)) return number;
  int exponent = 0;
  const double mantissa = std::frexp(number, &exponent);
  return std::ldexp(std::round(std::ldexp(mantissa, 40)), exponent - 40);
}

// `take`: of the number and its position among the arguments or, if that is -1, the keywords.
template <typename Take>
void ForEachNumber(const Operation& operation, const Take& take) {
  const std::string_view name = BaseName(operation.name);
  if (name == "ones" || name == "new_ones" || name == "ones_like") return take(1, -1, -1);
  const auto enters = [arithmetic = IsArithmetic(name)](const Argument& argument) {
    return arithmetic ? argument.is_number() : argument.kind == Argument::Kind::kFloat;
  };
  for (size_t p = 0; p < operation.args.size(); ++p) {
    if (enters(operation.args[p])) take(operation.args[p].number, static_cast<int>(p), -1);
  }
  for (size_t k = 0; k < operation.kwargs.size(); ++k) {
    const Argument& argument = operation.kwargs[k].second;
    if (enters(argument)) take(argument.number, -1, static_cast<int>(k));
  }
}

// By operation's name and number: the operations.
using Uses = std::map<std::pair<std::string_view, double>, std::vector<int>>;

// A number of each rank is looked at where it is used.
Uses UsesOf(const Program& program) {
  Uses uses;
  for (int op = 0; op < static_cast<int>(program.ops.size()); ++op) {
    ForEachNumber(program.ops[op], [&](double number, int, int) {
      const std::string_view name = NameOf(program.ops[op]);
      if (Counts(name, number)) uses[{name, Rounded(number)}].push_back(op);
    });
  }
  return uses;
}

// Each divided by the power of n that it goes with. `unknown`: by operation's name, how many go
// with the rank, or with the size in another way; they are looked at where they are used.
Uses UsesOf(const Alignment& traces, std::map<std::string_view, size_t>& unknown) {
  Uses uses;
  for (int op = 0; op < static_cast<int>(traces.base().ops.size()); ++op) {
    const std::string_view name = NameOf(traces.base().ops[op]);
    ForEachNumber(traces.base().ops[op], [&](double number, int position, int keyword) {
      NumberRef ref{.value = number, .twice = number, .of_ranks = {}};
      if (position >= 0) ref = traces.Number(op, position);
      if (keyword >= 0) ref = traces.KeywordNumber(op, keyword);
      const auto power = PowerOf(ref);
      if (!ref.of_ranks.empty() || !power) {
        ++unknown[name];
        return;
      }
      const double whole = Rounded(number / std::pow(traces.size(), *power));
      if (Counts(name, whole)) uses[{name, whole}].push_back(op);
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
  std::map<std::string_view, size_t> unknown;
  for (const auto& [key, ops] : UsesOf(traces, unknown)) {
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
  std::map<std::string_view, size_t> unknown;
  const Uses sharded = UsesOf(traces, unknown);
  for (const auto& [key, ops] : UsesOf(whole)) {
    const size_t count = CountOf(sharded, key);
    if (count + unknown[key.first] >= ops.size()) continue;
    return absl::StrCat("the unsharded program has the number ", key.second, " ", ops.size(),
                        " times, first at ", OperationName(whole, ops.front()),
                        ", the sharded one ", count, " times", OfAnotherJob(traces));
  }
  return "";
}

}  // namespace sumonce::trace

// What is declared of an aten or c10d operation, and the table of all declarations. An operation is
// known by its name without namespace, overload and trailing underscore: "mul" is aten.mul.Tensor,
// aten.mul.Scalar and aten.mul_.Tensor. What is not in the table is refused by name.
//
// Most operations are local ones, and declare of each result what spmd/operation.h asks of any
// operation: in which operands it is linear, which dimensions it sums and which it mixes. The rule
// that follows is the one of spmd/local_rules.h.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spmd/operation.h"
#include "trace/call.h"

namespace sumonce::trace {

// A name for each dimension of a tensor, the same name for dimensions that are cut together.
// kUnnamed: an extent of 1 that is repeated, or one that no operand can cut.
using Labels = absl::InlinedVector<int, 5>;
inline constexpr int kUnnamed = -1;
inline constexpr int kMaxLabels = 28;

struct Operand {
  int position = 0;  // of the argument
  Labels labels;
  // Instead of an argument: a part of the result, with the result's extents. Outlives Evaluate.
  const Value* part = nullptr;
};

// One result of a local operation.
struct LocalRule {
  std::vector<Operand> operands;
  Labels result;
  uint32_t linear = 0;                     // bit i: in operands[i]
  DimSet sums = 0, mixes = 0, maxima = 0;  // of labels
  bool addition = false;
  Scale factor;                   // of the result
  const char* refused = nullptr;  // this form is none that is known
};

// The value of a result whose operands hold what the memory says.
Value Evaluate(const Call& call, const LocalRule& rule);

// The values of the results (an operation's `outs`), or of what it writes if it writes in place.
using Rule = std::function<std::vector<Value>(const Call& call)>;
using LocalDeclaration = std::function<std::vector<LocalRule>(const Call& call)>;

Rule Local(LocalDeclaration declaration);

struct Declared {
  Rule rule;                   // null: a view, whose value follows from memory
  std::string_view form = {};  // of the first arguments: t tensor, l list, n number, . anything
  uint32_t may_vary = 0;       // positions of numbers, or of lists of them, that the rule looks at
  std::vector<std::string_view> keywords = {};  // that the rule looks at, beside harmless ones
  LocalDeclaration local = nullptr;  // what the rule evaluates, where it does nothing else
  bool writes_first = false;  // a collective: its first argument is written, whatever is recorded
};

class DeclarationTable {
 public:
  void Add(std::string_view name, Declared declared);
  void AddLocal(std::string_view name, std::string_view form, LocalDeclaration declaration,
                uint32_t may_vary = 0);
  void AddLocal(std::initializer_list<std::string_view> names, std::string_view form,
                const LocalDeclaration& declaration);
  void AddViews(std::initializer_list<std::string_view> names);
  const Declared* Find(std::string_view name) const;
  const std::map<std::string, Declared, std::less<>>& all() const { return declared_; }

 private:
  std::map<std::string, Declared, std::less<>> declared_;
};

// "mul" of "aten.mul_.Tensor", "allreduce_" of "c10d.allreduce_".
std::string_view BaseName(std::string_view operation);

void RegisterAllDeclarations(DeclarationTable& table);  // generated
const DeclarationTable& Declarations();                 // of this build, filled on first use

}  // namespace sumonce::trace

// One recorded operation as its declaration sees it: arguments by position, what they hold, how
// numbers differ between ranks and sizes. Made by the prover for the time of one operation.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "trace/memory.h"
#include "trace/reasons.h"

namespace sumonce::trace {

class Call {
 public:
  Call(const Alignment& traces, Memory& memory, Sections& sections, int op);

  int op() const { return op_; }
  const Operation& operation() const { return operation_; }
  const Alignment& traces() const { return traces_; }
  Memory& memory() const { return memory_; }
  Sections& sections() const { return sections_; }
  int size() const { return traces_.size(); }

  // Arguments. A position that is absent or None has none of these kinds.
  bool is_tensor(int position) const { return Is(position, Argument::Kind::kTensor); }
  bool is_list(int position) const { return Is(position, Argument::Kind::kList); }
  bool is_number(int position) const;
  TensorRef ref(int position) const { return traces_.Argument(op_, position); }
  Value value(int position) const { return memory_.Read(ref(position)); }
  const Extents& shape(int position) const;        // of a tensor
  const Extents& shape_twice(int position) const;  // at 2n
  std::string_view dtype(int position) const;      // of a tensor
  int64_t integer(int position, int64_t absent) const;
  bool flag(int position, bool absent) const;
  std::vector<int64_t> integers(int position) const;  // of a list; empty if there is none
  // A dimension of a tensor with `rank` dimensions: negative ones count from the end. -1: absurd.
  int dimension(int position, int64_t absent, int rank) const;
  std::optional<NumberRef> number(int position) const;
  std::optional<NumberRef> keyword(std::string_view key) const;
  const Argument* keyword_argument(std::string_view key) const;

  // Results.
  int outs() const { return static_cast<int>(operation_.outs.size()); }
  const Extents& out_shape(int k) const;
  std::string_view out_dtype() const;  // of the first result, "" if there is none

  Value Lose(const char* reason) const { return LostValue(reason, op_); }

 private:
  bool Is(int position, Argument::Kind kind) const;

  const Alignment& traces_;
  Memory& memory_;
  Sections& sections_;
  int op_;
  const Operation& operation_;
};

// k with twice = value * 2^k, the power of n that a number is; nothing: it is none. Numbers that
// are the same are the power 0.
std::optional<int> PowerOf(const NumberRef& number);

// What must not be read as a value: uninitialised memory, a look-up without its mask. Nothing: the
// value is a state or a constant.
const char* Unusable(const Value& value);

}  // namespace sumonce::trace

// For tests: the proof obligation of a declared operation (docs/THEORY.md "Obligations"). Every
// combination of states of its operands along an axis of n ranks goes through the declaration as
// the prover uses it, and what that claims of the result is compared with what the ranks' arrays
// are.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trace/declaration.h"
#include "trace/testing/arrays.h"

namespace sumonce::trace::testing {

// Arguments by hand: T(0) is the first operand.
Argument T(int operand);
Argument N(double number);
Argument I(int64_t integer);
Argument L(const std::vector<int64_t>& integers);
Argument Tensors(const std::vector<int>& operands);
Argument B(bool flag);
Argument None();
Argument Axis(int size);
Argument Reduce(std::string_view name);

// A rank's arrays in, its results out. `size` ranks: the extents of a shard are a part of the
// whole.
struct Example {
  std::string op;  // "aten.mm"
  std::vector<Extents> operands;
  // Of operands of these extents, on a rank of an axis of this size.
  std::function<std::vector<Argument>(const std::vector<Extents>&, int size, int rank)> args;
  std::function<std::vector<Array>(const std::vector<Array>& in, const std::vector<Argument>& args)>
      kernel = {};
  // A collective: all ranks' operands to all ranks' results; of the whole, `kernel`.
  std::function<std::vector<Array>(const std::vector<std::vector<Array>>& ranks)> across = {};
  // A view: the results' geometries in the (contiguous) first operand.
  std::function<std::vector<Geometry>(const std::vector<Extents>&, int size, int rank)> views = {};
  // Whole-valued operands with entries from 0 to below this; 0: any numbers.
  std::vector<int> index_below = {};
  // Whether operands of these extents can meet at all; absent: they can.
  std::function<bool(const std::vector<Extents>&)> compatible = {};
  std::vector<std::pair<std::string_view, Argument>> keywords = {};
  std::vector<bool> fixed_equal = {};  // operands that are E in every combination
  int only_n = 0;                      // swept at this size alone; 0: at every
  bool fixed_shard = false;    // the first operand, of which only the extents count, is S(0)
  bool writes_first = false;   // in place, or into the first operand
  bool uninitialised = false;  // the first operand's content is of no account
  double low = -3, high = 3;   // of entries, integers unless `fractions`
  bool fractions = false;
  bool positive = false;
};

struct SweepCounts {
  int claims = 0;
  int refusals = 0;
  int idle = 0;  // refusals of what is in some state after all
  std::vector<std::string> unsound;
};
struct SweepOptions {
  bool to_first_fault = false;  // stops at an unsound claim
  int stride = 1;               // each so-many-th combination
};
SweepCounts Sweep(const Example& example, int n, const DeclarationTable& table,
                  const SweepOptions& options);

}  // namespace sumonce::trace::testing

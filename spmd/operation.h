// A local operation: two kernels and one declaration. The declaration is all that the prover needs;
// the kernels are all that a rank needs; neither knows ranks or sizes. One file of spmd/ops each,
// entered by Register<Name> in the registry, whose examples are the operation's proof obligations
// (spmd/obligations_test.cc: both sweeps of docs/THEORY.md "Obligations", finite differences).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "spmd/dim.h"
#include "spmd/tensor.h"

namespace sumonce {

// What one application declares. Every dimension that is neither in `sums` nor in `mixes` is free:
// cutting the operands along it cuts the result.
struct Declaration {
  Dims result;
  uint32_t linear = 0;  // bit i: linear in operand i while the others are fixed
  DimSet sums = 0;   // dimensions of operands, absent from the result, over which it is a plain sum
                     // of per-slice terms
  DimSet mixes = 0;  // dimensions combined in any other way
  DimSet maxima = 0;  // likewise, over which it is the maximum of the per-slice maxima
  // a + b + ..., its own kind: also where an addend lacks some of the first's dimensions and is the
  // same along them, or is set beside the others.
  bool addition = false;
};
constexpr uint32_t Linear() { return 0; }
template <typename... Rest>
constexpr uint32_t Linear(int first, Rest... rest) {
  return (1u << first) | Linear(rest...);
}

class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::string_view name() const = 0;  // "RmsNorm"

  // The declaration for operands of these dimensions (a rank's own, or the whole's).
  // InvalidArgument names the operand, its dimensions and what was expected: this is the shape
  // check.
  virtual absl::StatusOr<Declaration> Declare(std::span<const Dims> operands) const = 0;

  // out = f(in...). `out` has the declared dimensions and is zero.
  virtual void Forward(std::span<const Tensor> in, Tensor& out) const = 0;

  // grad_in[i] (zero, of in[i]'s dimensions; empty where no gradient is wanted) = J_i^T grad_out.
  virtual void Backward(std::span<const Tensor> in, const Tensor& out, const Tensor& grad_out,
                        std::span<Tensor> grad_in) const = 0;
};

// One application for the obligations: small extents, divisible by 2 and 3 in every dimension that
// may be cut.
struct OperationExample {
  std::shared_ptr<const Operation> operation;
  std::vector<Dims> operands;
  std::vector<bool> constant = {};  // per operand: no gradient (empty: none)
  bool polynomial = false;        // integer operands give exact results: swept with zero tolerance
  double low = -2.0, high = 2.0;  // range of the operands' values otherwise
};

class OperationRegistry {
 public:
  void Add(std::string name, std::vector<OperationExample> examples);
  const std::map<std::string, std::vector<OperationExample>>& all() const { return operations_; }

 private:
  std::map<std::string, std::vector<OperationExample>> operations_;
};

void RegisterAllOperations(OperationRegistry& registry);  // generated
const OperationRegistry& Operations();                    // of this build, filled on first use

}  // namespace sumonce

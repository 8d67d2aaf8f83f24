// The types of a program read forward, as a person reads it: along each mesh axis a value is
// R (replicated, its cotangent is a sum of terms), I (invariant: one value, its cotangent is
// complete), V (varying: a shard) or P (partial). Pinned by the communications and by where shards
// and partial sums begin (docs/THEORY.md "Types"). A correct program has a typing, and then each
// gradient's class follows from its parameter's type alone: partial, complete, shard. This checks
// the backward propagation that verdicts are made of, by another way; it can only reject a wrong
// program, not say by which factor it is wrong.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "spmd/abstract_tape.h"

namespace sumonce {

enum class ForwardType : uint8_t {
  kFree,  // a replicated value that nothing pins
  kR,
  kI,
  kV,
  kP,
  kConflict,  // used as R and as I
  kUnknown,   // the layout is lost
};
std::string_view Name(ForwardType type);  // "R", ...

struct ForwardTypes {
  // Of each use of a parameter: (node, atomic axis) -> type.
  std::map<std::pair<int, int>, ForwardType> uses;
  // Operations where a value is used as R and as I, and communications whose two directions belong
  // to no pair; by name, in the order of the tape.
  std::vector<std::string> conflicts;

  // Of all uses of a parameter along an atomic axis together.
  ForwardType OfParam(const AbstractTape& tape, const Param& param, int atomic_axis) const;
};

// After the tape's forward run. `loss`: the node that Backward was called on.
ForwardTypes InferForward(const AbstractTape& tape, int loss);

}  // namespace sumonce

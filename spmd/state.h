// How the ranks' arrays of one tensor stand to the unsharded reference's (docs/THEORY.md "States").
// Values and gradients (cotangents) have the same states.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "comm/mesh.h"
#include "spmd/dim.h"
#include "spmd/scale.h"

namespace sumonce {

enum class Layout : uint8_t {
  kEqual,    // E: each rank holds lambda*x
  kShard,    // S: rank k holds slice k of lambda*x along `dim`
  kPartial,  // P: terms, their sum is lambda*x; `why`: the dimensions whose cut made them
  kMixed,    // M: each rank holds the sum of the different slices of lambda*x
  kMaxima,   // X: each rank holds the maximum over its slice, x is their maximum; only Map::kMax
             // reads it
};

struct AxisState {
  Layout layout = Layout::kEqual;
  Dim dim = Dim::kSequence;  // kShard: along which dimension
  int8_t order = 0;          // kShard: how many axes cut `dim` before this one
  DimSet why = 0;            // kPartial
  bool operator==(const AxisState&) const = default;
};

// Why a state is off or lost, first reason first. The text is one of a few constant sentences.
struct Fault {
  const char* reason = nullptr;  // null: no fault
  int operation = -1;            // index of the operation on the tape that raised it; -1: none
  explicit operator bool() const { return reason != nullptr; }
  bool operator==(const Fault&) const = default;
};

struct State {
  std::array<AxisState, kMaxAtomicAxes> axes = {};
  Scale scale;
  Fault off;   // layouts known, but the values are no multiple of the reference's
  Fault lost;  // nothing is known: values, and every gradient through it

  bool ok() const { return !off && !lost; }
  const AxisState& operator[](int atomic_axis) const { return axes[atomic_axis]; }
  AxisState& operator[](int atomic_axis) { return axes[atomic_axis]; }
};

AxisState Equal();
AxisState Shard(Dim dim, int order = 0);
AxisState Partial(DimSet why);
AxisState Mixed();
AxisState Maxima();

// "E", "S(s)", "P(s)", "M" per active axis with the scale: "tp: P(s), dp: S(b)", "tp: E, times tp",
// "lost: ... at ...".
std::string Describe(const State& state, const Mesh& mesh);

}  // namespace sumonce

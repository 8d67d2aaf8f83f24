// What is known of a tensor of a traced program: its state along the axis in the sense of
// spmd/state.h, or one of the few things that are no state. Dimensions have positions here, not
// names: DimAt(2) is the third.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spmd/state.h"
#include "trace/sections.h"
#include "trace/strides.h"

namespace sumonce::trace {

// The axis that is proved is the only one: atomic axis 0.
inline constexpr int kAxis = 0;

constexpr Dim DimAt(int position) { return static_cast<Dim>(position); }
constexpr int PositionOf(Dim dim) { return static_cast<int>(dim); }

enum class Kind : uint8_t {
  kState,          // `state`; of a shard also `cut` and `strip`
  kUniform,        // `state.scale` times one number of the reference's, everywhere and whatever the
                   // extents: `number`, if it is known and the scale is 1
  kUninitialised,  // memory that nobody has written
  kRankSlice,      // in the result of an all-gather: the slice of rank `index` of a shard
  // What a look-up in a table that is cut by rows makes of whole-table indices, for the rank whose
  // rows are [r * block, (r + 1) * block) (docs/TRACE.md "Own range"):
  kBelow,         // index < r * block (`bound` 0), or < (r + 1) * block (`bound` 1)
  kNotBelow,      // index >= the same
  kOutside,       // 1 where the index is another rank's
  kInside,        // 1 - kOutside
  kRelative,      // index - r * block
  kOwnIndex,      // the same where it is own, else 0
  kFound,         // the table's entries at kOwnIndex: others' are of entry 0
  kFoundLessOwn,  // kFound minus kInside
  kOwnOnly,       // a value, zero where the index is another rank's
};

// Which whole-table indices a value of the own-range chain goes back to: two of a chain have to be
// the same.
struct IndexOrigin {
  int op = -1;     // that made them; -2 - storage: none did
  Geometry order;  // as OrderOf says
  bool operator==(const IndexOrigin&) const = default;
};

struct Value {
  Kind kind = Kind::kState;
  State state;
  Cut cut;                          // kState with a shard; kRankSlice
  Strip strip;                      // likewise
  std::optional<double> number;     // kUniform
  bool alike = false;               // a shard whose slices are the same on every rank
  int64_t block = 0;                // own range: rows of a rank
  int bound = 0;                    // kBelow, kNotBelow
  int index = 0;                    // kRankSlice
  int gather = -1;                  // kRankSlice: the all-gather; kFound: storage of the table
  int version = 0;                  // kFound: of that storage
  IndexOrigin origin;               // own range
  std::vector<IndexOrigin> beside;  // kFound: of the table's other indices

  bool lost() const { return static_cast<bool>(state.lost); }
  bool is_state() const { return kind == Kind::kState; }
  Layout layout() const { return state[kAxis].layout; }
  bool is(Layout layout) const { return is_state() && !lost() && state[kAxis].layout == layout; }
  bool is_zero() const { return kind == Kind::kUniform && number == 0.0; }
};

Value EqualValue();
Value UniformValue(std::optional<double> number);
Value UninitialisedValue();
Value LostValue(const char* reason, int op);
Value ShardValue(const Cut& cut, Strip strip, const Scale& scale = {});
Value StateValue(const State& state);  // no shard

// A constant as a value that each rank has whole.
State StateOfConstant(const Value& constant);

// Two parts, or two uses, in the same state: as one they are in it too.
bool SameState(const Value& a, const Value& b);

// "E", "S(0)", "P, times tp", "a constant": for people.
std::string Describe(const Value& value, const Mesh& mesh);

}  // namespace sumonce::trace

// Named axes of one world, in Megatron's rank order: tp fastest, then cp, dp, pp for dense tensors
// (etp, ep, edp, pp for experts). Both factorisations are tuples of the common *atomic* axes
// (theory: docs/THEORY.md "Atomic axes").
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sumonce {

// kKv and kKvCopy are the slow and the fast part of tp where a model has fewer key-value groups
// than tp ranks: ranks along kKv hold different groups, ranks along kKvCopy share one.
enum class Axis : uint8_t { kTp, kCp, kDp, kPp, kEtp, kEp, kEdp, kKv, kKvCopy };
inline constexpr int kNumAxes = 9;
std::string_view Name(Axis axis);  // "tp", ...

struct MeshSizes {
  int tp = 1;
  int cp = 1;
  int dp = 1;
  int pp = 1;
  int ep = 1;
  int etp = 0;  // 0: equal to tp (Megatron's default)
  int kv = 0;   // of tp: how many ranks hold different key-value groups; 0: all

  int world_size() const { return tp * cp * dp * pp; }
};

inline constexpr int kMaxAtomicAxes = 6;

// One factor of the world: `size` ranks, `stride` apart.
struct AtomicAxis {
  int size = 1;
  int stride = 1;
  std::string name;  // "tp", or "tp.0" when a named axis is a tuple of several
};

// An ordered list of atomic axes, slowest first: the ranks that differ in these coordinates only.
struct Group {
  std::string name;         // "tp", "dp_cp", "tp_dp_cp", ...
  std::vector<int> atomic;  // indices into Mesh::atomic()
  bool operator==(const Group&) const = default;
};

class Mesh {
 public:
  // InvalidArgument: sizes below 1, expert sizes that do not divide the world, cuts that do not
  // nest.
  static absl::StatusOr<Mesh> Create(const MeshSizes& sizes);

  int world_size() const { return sizes_.world_size(); }
  const MeshSizes& sizes() const { return sizes_; }
  int size(Axis axis) const;                  // of a named axis
  int coordinate(int rank, Axis axis) const;  // of a world rank along a named axis
  const std::vector<AtomicAxis>& atomic() const { return atomic_; }

  Group GroupOf(Axis axis) const;                                        // its atomic axes
  Group GroupOf(const std::vector<Axis>& axes, std::string name) const;  // e.g. {kDp, kCp} "dp_cp"
  int size(const Group& group) const;
  // World ranks of the group that `rank` belongs to, in group order.
  std::vector<int> Ranks(const Group& group, int rank) const;
  // Index of `rank` inside it.
  int RankIn(const Group& group, int rank) const;

 private:
  MeshSizes sizes_;
  std::vector<AtomicAxis> atomic_;
  std::array<std::vector<int>, kNumAxes> axis_atomic_;
};

}  // namespace sumonce

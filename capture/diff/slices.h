// Where the slices of one tensor lie in another: rows, columns, or slices along any dimension, told
// apart by fingerprints of their values. This is how a permutation, another packing, a shift or a
// transposition is seen without holding the tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/diff/figures.h"

namespace sumonce::diff {

// A fingerprint of each slice along `dim`: its values in row-major order, by their bits, so 0 and
// -0 differ. One pass; memory 8 bytes for each slice.
absl::StatusOr<std::vector<uint64_t>> Fingerprints(const TensorRef& tensor, size_t dim);
// More slices are not looked at.
inline constexpr int64_t kMaxSlices = int64_t{1} << 22;

// A stretch of slices that lie one behind the other in both tensors.
struct Run {
  int64_t from_a = 0;
  int64_t from_b = 0;
  int64_t count = 0;
  bool operator==(const Run&) const = default;
};

// B's slices as A's, in the order of B, where B is a permutation of A (equal slices keep their
// order). None if it is not.
std::optional<std::vector<Run>> PermutationOf(const std::vector<uint64_t>& a,
                                              const std::vector<uint64_t>& b);

// The offset by which most of A's slices reappear in B (b = a + offset), if more than half of the
// distinct ones do; none otherwise, or if it is 0.
struct Shift {
  int64_t offset = 0;
  int64_t matched = 0;
};
std::optional<Shift> ShiftOf(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b);

// A permutation, told as a change of packing: `units` times `parts` stretches, one unit behind the
// other in one tensor, one part behind the other in the other ([Q | K | V] against per-head q, k,
// v; [gate | up] against a pair a rank).
struct Repacking {
  int64_t units = 0;
  int64_t parts = 0;
  std::vector<int64_t> rows;  // of each part of a unit
  bool units_in_a = true;     // A has unit behind unit
};
std::optional<Repacking> RepackingOf(const std::vector<Run>& runs);

}  // namespace sumonce::diff

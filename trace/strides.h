// Arithmetic of memory: which elements two tensors of one storage share, and where the shard of one
// is found in the other. One rule serves view, reshape, transpose, slice, select, split and
// as_strided alike, because a view is nothing but another geometry of the same storage
// (docs/TRACE.md "Memory"). Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/program.h"

namespace sumonce::trace {

// How the elements of `part` lie to those of `whole`. kUnknown: they meet, and no common grid says
// how.
enum class Overlap : uint8_t { kNone, kInside, kSome, kUnknown };
struct OverlapResult {
  Overlap overlap = Overlap::kNone;
  int64_t shared = 0;  // elements in common; of kUnknown: 0
};
OverlapResult OverlapOf(const Geometry& part, const Geometry& whole);

// Along `dim` a rank's tensor holds `outer` repetitions of its block of `block` entries.
struct Cut {
  int dim = 0;
  int64_t outer = 1;
  int64_t block = 1;
  bool operator==(const Cut&) const = default;
};

// The same shard seen through `to`, whose elements lie inside those of `from`. `begin`, `end`: the
// part of each block that is seen, in entries of the new cut of which `from` has `of`. Nothing: the
// shard is no run of entries along a single dimension of `to`.
struct CutView {
  Cut cut;
  int64_t begin = 0, end = 0, of = 0;
};
std::optional<CutView> ViewOf(const Geometry& from, const Cut& cut, const Geometry& to);

// In which order a tensor's elements stand in memory, whatever its shape: consecutive dimensions
// that run on are one, those of extent 1 none.
Geometry OrderOf(const Geometry& geometry);

// Where `to` begins in `from` and what each of its dimensions steps, as indices along the
// dimensions of `from`; one entry a dimension of `from`, for the beginning and then each dimension
// of `to` in turn. Equal places at two group sizes are the same part of the same whole.
std::vector<int64_t> PlaceIn(const Geometry& from, const Geometry& to);

}  // namespace sumonce::trace

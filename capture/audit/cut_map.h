// How a rank's tensor is cut out of the whole one: along one dimension, each section apart (Q | K |
// V of a fused projection). Elements keep their order, so a range of the whole is a range of the
// shard. Sizes are checked by Create; indices are the caller's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/manifest.h"

namespace sumonce::capture {

class CutMap {
 public:
  // `local`: the shape of one of `parts` equal shards. InvalidArgument: the dimension is not there,
  // or the sections do not add up to the whole.
  static absl::StatusOr<CutMap> Create(const std::vector<int64_t>& local, const ParamLayout& layout,
                                       int parts);
  // Nothing is cut.
  static CutMap Whole(const std::vector<int64_t>& shape);

  int parts() const { return parts_; }
  int64_t whole_count() const { return outer_ * whole_ * inner_; }
  std::vector<int64_t> whole_shape(const std::vector<int64_t>& local) const;

  // The range of the shard that lies in [begin, end) of the whole.
  struct Range {
    int64_t begin = 0;
    int64_t count = 0;
  };
  Range InWhole(int part, int64_t begin, int64_t end) const;

  // Calls run(whole_begin, shard_begin, count) for each piece of that range, ascending.
  template <typename Run>
  void ForEachRun(int part, int64_t begin, int64_t end, Run run) const {
    const int64_t row = whole_ * inner_;
    for (int64_t o = row == 0 ? 0 : begin / row; o < outer_ && o * row < end; ++o) {
      int64_t local = 0;  // along the dimension, of the shard
      int64_t start = 0;  // along the dimension, of the section
      for (const int64_t section : sections_) {
        const int64_t extent = section / parts_;
        const int64_t first = o * row + (start + part * extent) * inner_;
        const int64_t from = std::max(first, begin);
        const int64_t to = std::min(first + extent * inner_, end);
        const int64_t shard = (o * (whole_ / parts_) + local) * inner_;
        if (from < to) run(from, shard + (from - first), to - from);
        local += extent;
        start += section;
      }
    }
  }

 private:
  int parts_ = 1;
  int dim_ = 0;
  int64_t outer_ = 1;
  int64_t whole_ = 1;  // extent of the dimension
  int64_t inner_ = 1;
  std::vector<int64_t> sections_;
};

}  // namespace sumonce::capture

#include "capture/audit/cut_map.h"

#include "absl/strings/str_cat.h"

namespace sumonce::capture {

absl::StatusOr<CutMap> CutMap::Create(const std::vector<int64_t>& local, const ParamLayout& layout,
                                      int parts) {
  const auto dims = static_cast<int>(local.size());
  if (layout.dim < 0 || layout.dim >= dims) {
    return absl::InvalidArgumentError(
        absl::StrCat("cut along dimension ", layout.dim, " of ", dims));
  }
  CutMap map;
  map.parts_ = parts;
  map.dim_ = layout.dim;
  for (int i = 0; i < dims; ++i) {
    if (i < layout.dim) map.outer_ *= local[i];
    if (i > layout.dim) map.inner_ *= local[i];
  }
  map.whole_ = local[layout.dim] * parts;
  map.sections_ = layout.sections.empty() ? std::vector<int64_t>{map.whole_} : layout.sections;
  int64_t sum = 0;
  for (const int64_t section : map.sections_) {
    if (section % parts != 0)
      return absl::InvalidArgumentError(
          absl::StrCat("a section of ", section, " cannot be cut in ", parts));
    sum += section;
  }
  if (sum != map.whole_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its sections add up to ", sum, ", its extent is ", map.whole_, " over ", parts, " ranks"));
  }
  return map;
}

CutMap CutMap::Whole(const std::vector<int64_t>& shape) {
  CutMap map;
  for (const int64_t extent : shape) map.whole_ *= extent;
  map.sections_ = {map.whole_};
  return map;
}

std::vector<int64_t> CutMap::whole_shape(const std::vector<int64_t>& local) const {
  std::vector<int64_t> shape = local;
  if (parts_ > 1) shape[dim_] *= parts_;
  return shape;
}

CutMap::Range CutMap::InWhole(int part, int64_t begin, int64_t end) const {
  Range range;
  bool first = true;
  ForEachRun(part, begin, end, [&](int64_t, int64_t shard, int64_t count) {
    if (first) range.begin = shard;
    first = false;
    range.count = shard + count - range.begin;
  });
  return range;
}

}  // namespace sumonce::capture

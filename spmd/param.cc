#include "spmd/param.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {

bool ShardMap::CutBy(Axis axis) const {
  for (const Cut& cut : cuts_) {
    if (cut.axis == axis) return true;
  }
  return false;
}

absl::Status ShardMap::CheckDivides(const Mesh& mesh) const {
  Dims left = whole_;
  for (const Cut& cut : cuts_) {
    const int position = Find(left, cut.dim);
    SUMONCE_CHECK(position >= 0) << Describe(whole_) << " has no dimension " << Name(cut.dim);
    const int size = mesh.size(cut.axis);
    if (left[position].units % size != 0) {
      return absl::InvalidArgumentError(absl::StrCat(left[position].units, " units of dimension ",
                                                     ToAbsl(Name(cut.dim)), " cannot be cut by ",
                                                     ToAbsl(Name(cut.axis)), "=", size));
    }
    left[position].units /= size;
  }
  return absl::OkStatus();
}

Dims ShardMap::Local(const Mesh& mesh) const {
  Dims local = whole_;
  for (const Cut& cut : cuts_) local[Find(local, cut.dim)].units /= mesh.size(cut.axis);
  return local;
}

Tensor ShardMap::Slice(const Tensor& whole, const Mesh& mesh, int rank) const {
  Tensor slice = whole;
  for (const Cut& cut : cuts_) {
    const int size = mesh.size(cut.axis);
    if (size > 1) slice = SliceUnits(slice, cut.dim, mesh.coordinate(rank, cut.axis), size);
  }
  return slice;
}

std::vector<int64_t> ShardMap::GlobalIndices(const Mesh& mesh, int rank) const {
  Tensor numbers(whole_);
  for (int64_t i = 0; i < numbers.count(); ++i) numbers.data()[i] = static_cast<double>(i);
  const Tensor mine = Slice(numbers, mesh, rank);
  std::vector<int64_t> indices(mine.count());
  for (int64_t i = 0; i < mine.count(); ++i) indices[i] = static_cast<int64_t>(mine.data()[i]);
  return indices;
}

State ShardMap::Target(const Mesh& mesh) const {
  State state;
  for (const Cut& cut : cuts_) {
    for (int axis : mesh.GroupOf(cut.axis).atomic) {
      int order = 0;
      for (const AxisState& other : state.axes)
        order += other.layout == Layout::kShard && other.dim == cut.dim;
      state[axis] = Shard(cut.dim, order);
    }
  }
  return state;
}

}  // namespace sumonce

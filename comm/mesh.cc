#include "comm/mesh.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce {
namespace {

constexpr int64_t kMaxWorldSize = int64_t{1} << 20;

// A named axis covers the rank strides from `begin` up to `end`; its size is end / begin.
struct Span {
  int begin = 1;
  int end = 1;
};

std::array<Span, kNumAxes> SpansOf(const MeshSizes& sizes) {
  const int tp = sizes.tp;
  const int tp_cp = tp * sizes.cp;
  const int tp_cp_dp = tp_cp * sizes.dp;
  const int etp_ep = sizes.etp * sizes.ep;
  std::array<Span, kNumAxes> spans;
  spans[static_cast<int>(Axis::kTp)] = {1, tp};
  spans[static_cast<int>(Axis::kCp)] = {tp, tp_cp};
  spans[static_cast<int>(Axis::kDp)] = {tp_cp, tp_cp_dp};
  spans[static_cast<int>(Axis::kPp)] = {tp_cp_dp, sizes.world_size()};
  spans[static_cast<int>(Axis::kEtp)] = {1, sizes.etp};
  spans[static_cast<int>(Axis::kEp)] = {sizes.etp, etp_ep};
  spans[static_cast<int>(Axis::kEdp)] = {etp_ep, tp_cp_dp};
  const int copies = tp / sizes.kv;
  spans[static_cast<int>(Axis::kKv)] = {copies, tp};
  spans[static_cast<int>(Axis::kKvCopy)] = {1, copies};
  return spans;
}

absl::Status CheckSizes(const MeshSizes& sizes) {
  const std::pair<const char*, int> named[] = {
      {"tp", sizes.tp}, {"cp", sizes.cp},   {"dp", sizes.dp}, {"pp", sizes.pp},
      {"ep", sizes.ep}, {"etp", sizes.etp}, {"kv", sizes.kv}};
  int64_t world = 1;
  for (const auto& [name, size] : named) {
    if (size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: ", name, " is ", size, ", expected at least 1"));
    }
  }
  for (const auto& [name, size] : std::span(named).first(4)) {
    world *= size;
    if (world > kMaxWorldSize) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: tp*cp*dp*pp is above ", kMaxWorldSize, " ranks"));
    }
  }
  if (sizes.tp % sizes.kv != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh: kv = ", sizes.kv, " does not divide tp = ", sizes.tp));
  }
  const int64_t dense = int64_t{sizes.tp} * sizes.cp * sizes.dp;
  const int64_t expert = int64_t{sizes.etp} * sizes.ep;
  if (dense % expert != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh: etp*ep = ", sizes.etp, "*", sizes.ep, " = ", expert,
                     " does not divide tp*cp*dp = ", dense, ", so there is no whole edp"));
  }
  return absl::OkStatus();
}

// The strides at which either factorisation cuts the world, ascending, without repetition. Each
// must divide the next: the quotients are the atomic axes (docs/THEORY.md, "Atomic axes").
absl::StatusOr<std::vector<int>> NestedCuts(const std::array<Span, kNumAxes>& spans) {
  std::vector<int> cuts = {1};
  for (const Span& span : spans) cuts.push_back(span.end);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i] % cuts[i - 1] != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mesh: the dense (tp, cp, dp) and the expert (etp, ep, edp) sizes cut the ranks at ",
          absl::StrJoin(cuts, ", "), ", and ", cuts[i - 1], " does not divide ", cuts[i],
          ": the two have no common refinement"));
    }
  }
  return cuts;
}

// Indices of the atomic axes inside a span, slowest first.
std::vector<int> AtomicIn(const Span& span, const std::vector<AtomicAxis>& atomic) {
  std::vector<int> inside;
  for (int i = static_cast<int>(atomic.size()) - 1; i >= 0; --i) {
    const AtomicAxis& axis = atomic[i];
    if (axis.stride >= span.begin && axis.stride * axis.size <= span.end) inside.push_back(i);
  }
  return inside;
}

// The dense axes partition the atomic ones, so they name them: "cp", or "cp.0" (fastest), "cp.1",
// ...
void NameAtomic(std::string_view axis, const std::vector<int>& inside,
                std::vector<AtomicAxis>& atomic) {
  for (size_t k = 0; k < inside.size(); ++k) {
    std::string& name = atomic[inside[k]].name;
    name = std::string(axis);
    if (inside.size() > 1) absl::StrAppend(&name, ".", inside.size() - 1 - k);
  }
}

}  // namespace

std::string_view Name(Axis axis) {
  static constexpr std::string_view kNames[kNumAxes] = {"tp", "cp",  "dp", "pp",       "etp",
                                                        "ep", "edp", "kv", "kv_copies"};
  return kNames[static_cast<int>(axis)];
}

absl::StatusOr<Mesh> Mesh::Create(const MeshSizes& sizes) {
  Mesh mesh;
  mesh.sizes_ = sizes;
  if (sizes.etp == 0) mesh.sizes_.etp = sizes.tp;
  if (sizes.kv == 0) mesh.sizes_.kv = sizes.tp;
  SUMONCE_RETURN_IF_ERROR(CheckSizes(mesh.sizes_));
  const std::array<Span, kNumAxes> spans = SpansOf(mesh.sizes_);
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<int> cuts, NestedCuts(spans));
  for (size_t i = 1; i < cuts.size(); ++i) {
    mesh.atomic_.push_back({.size = cuts[i] / cuts[i - 1], .stride = cuts[i - 1]});
  }
  SUMONCE_CHECK(mesh.atomic_.size() <= kMaxAtomicAxes) << mesh.atomic_.size();
  for (int axis = 0; axis < kNumAxes; ++axis) {
    mesh.axis_atomic_[axis] = AtomicIn(spans[axis], mesh.atomic_);
  }
  for (Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp}) {
    NameAtomic(Name(axis), mesh.axis_atomic_[static_cast<int>(axis)], mesh.atomic_);
  }
  return mesh;
}

int Mesh::size(Axis axis) const { return size(GroupOf(axis)); }

int Mesh::coordinate(int rank, Axis axis) const { return RankIn(GroupOf(axis), rank); }

Group Mesh::GroupOf(Axis axis) const {
  return {std::string(Name(axis)), axis_atomic_[static_cast<int>(axis)]};
}

Group Mesh::GroupOf(const std::vector<Axis>& axes, std::string name) const {
  Group group{std::move(name), {}};
  for (Axis axis : axes) {
    const std::vector<int>& inside = axis_atomic_[static_cast<int>(axis)];
    group.atomic.insert(group.atomic.end(), inside.begin(), inside.end());
  }
  std::sort(group.atomic.begin(), group.atomic.end(), std::greater<>());
  group.atomic.erase(std::unique(group.atomic.begin(), group.atomic.end()), group.atomic.end());
  return group;
}

int Mesh::size(const Group& group) const {
  int size = 1;
  for (int index : group.atomic) size *= atomic_[index].size;
  return size;
}

std::vector<int> Mesh::Ranks(const Group& group, int rank) const {
  SUMONCE_CHECK(rank >= 0 && rank < world_size()) << "rank " << rank << " of " << world_size();
  int first = rank;
  for (int index : group.atomic) {
    const AtomicAxis& axis = atomic_[index];
    first -= rank / axis.stride % axis.size * axis.stride;
  }
  std::vector<int> ranks = {first};
  for (int index : group.atomic) {  // each faster axis multiplies the list, inside the slower ones
    const AtomicAxis& axis = atomic_[index];
    std::vector<int> finer;
    for (int base : ranks) {
      for (int k = 0; k < axis.size; ++k) finer.push_back(base + k * axis.stride);
    }
    ranks = std::move(finer);
  }
  return ranks;
}

int Mesh::RankIn(const Group& group, int rank) const {
  SUMONCE_CHECK(rank >= 0 && rank < world_size()) << "rank " << rank << " of " << world_size();
  int position = 0;
  for (int index : group.atomic) {
    const AtomicAxis& axis = atomic_[index];
    position = position * axis.size + rank / axis.stride % axis.size;
  }
  return position;
}

}  // namespace sumonce

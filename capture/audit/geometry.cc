#include "capture/audit/geometry.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

constexpr char kDigits[] = "0123456789";

// One copy of a parameter: its number on one pipeline stage (and, for experts, one ep coordinate).
struct Copy {
  int param = 0;
  int pp = 0;
  int ep = 0;
  auto operator<=>(const Copy&) const = default;
};

// The axes of a family, and a rank's place along them.
class Family {
 public:
  Family(const Step& step, bool expert) : step_(step), expert_(expert) {
    const Manifest& first = step.Identity(step.ranks().front());
    tensor_ = first.AxisSize(expert ? "etp" : "tp");
    if (expert) {
      Add("edp", Axis::kEdp, first);
      return;
    }
    Add("cp", Axis::kCp, first);
    Add("dp", Axis::kDp, first);
    static const auto& known =
        *new std::set<std::string>{"tp", "cp", "dp", "pp", "ep", "etp", "edp"};
    for (const auto& [name, axis] : first.mesh) {
      if (!known.contains(name)) Add(name, Axis::kDp, first);
    }
  }

  int tensor() const { return tensor_; }
  int data() const {
    int data = 1;
    for (const int size : sizes_) data *= size;
    return data;
  }
  const std::vector<int>& sizes() const { return sizes_; }
  const std::vector<Axis>& axes() const { return axes_; }

  int TensorOf(int rank) const { return step_.Identity(rank).Coordinate(expert_ ? "etp" : "tp"); }
  int DataOf(int rank) const {
    int index = 0;
    for (size_t i = names_.size(); i-- > 0;)
      index = index * sizes_[i] + step_.Identity(rank).Coordinate(names_[i]);
    return index;
  }
  bool Belongs(int rank, const Copy& copy) const {
    const Manifest& identity = step_.Identity(rank);
    return identity.Coordinate("pp") == copy.pp &&
           (!expert_ || identity.Coordinate("ep") == copy.ep);
  }

 private:
  void Add(const std::string& name, Axis axis, const Manifest& first) {
    names_.push_back(name);
    axes_.push_back(axis);
    sizes_.push_back(first.AxisSize(name));
  }

  const Step& step_;
  bool expert_;
  int tensor_ = 1;
  std::vector<std::string> names_;
  std::vector<int> sizes_;
  std::vector<Axis> axes_;
};

// Placements come one per mesh dimension; the tensor-parallel dimension is the last one.
std::optional<CutKnown> ByPlacements(const Manifest& manifest, const std::string& name,
                                     std::optional<ParamLayout>& layout) {
  if (!manifest.placements) return std::nullopt;
  const auto entry = manifest.placements->find(name);
  if (entry == manifest.placements->end() || entry->second.param.empty()) return std::nullopt;
  if (manifest.AxisSize("tp") == 1) return CutKnown::kReplicated;
  const Placement& placement = entry->second.param.back();
  if (placement.kind == Placement::Kind::kReplicate) return CutKnown::kReplicated;
  if (placement.kind != Placement::Kind::kShard) return std::nullopt;
  layout = ParamLayout{.known = true, .dim = placement.dim, .sections = {}};
  return CutKnown::kShard;
}

void FindCut(const Manifest& manifest, const std::string& name, ParamGeometry& geometry) {
  if (manifest.layout) {
    const auto entry = manifest.layout->find(name);
    if (entry == manifest.layout->end()) {
      geometry.cut = CutKnown::kReplicated;
      return;
    }
    if (entry->second.known) {
      geometry.cut = CutKnown::kShard;
      geometry.layout = entry->second;
      return;
    }
  }
  geometry.cut = ByPlacements(manifest, name, geometry.layout).value_or(CutKnown::kUnknown);
}

// All holders must be cut alike.
void CompareCuts(const Step& step, ParamGeometry& geometry) {
  const Holder& first = geometry.first();
  const Manifest* compared = &step.Common(first.rank);
  for (const Holder& holder : geometry.holders) {
    if (!holder.present() || &step.Common(holder.rank) == compared) continue;
    compared = &step.Common(holder.rank);
    ParamGeometry other;
    FindCut(*compared, step.params()[holder.param], other);
    if (other.cut == geometry.cut && other.layout == geometry.layout) continue;
    geometry.conflict =
        absl::StrCat("rank ", holder.rank, "'s file says another cut of it than rank ", first.rank,
                     "'s (`layout` or `placements`)");
    return;
  }
}

Axis NameDataAxis(const Step& step, const ParamGeometry& geometry) {
  if (!geometry.expert) {
    for (size_t i = geometry.data_axes.size(); i-- > 0;) {
      if (geometry.data_axes[i] > 1) return geometry.data_axis_names[i];
    }
    return Axis::kDp;
  }
  bool along_tp = false, along_others = false;
  const Manifest& first = step.Identity(geometry.first().rank);
  for (const Holder& holder : geometry.holders) {
    if (holder.rank < 0) continue;
    const Manifest& other = step.Identity(holder.rank);
    along_tp |= other.Coordinate("tp") != first.Coordinate("tp");
    along_others |= other.Coordinate("dp") != first.Coordinate("dp") ||
                    other.Coordinate("cp") != first.Coordinate("cp");
  }
  return along_tp && !along_others ? Axis::kTp : Axis::kEdp;
}

void PlaceHolders(const Step& step, const Family& family, const std::vector<Copy>& copies,
                  int finalized, ParamGeometry& geometry) {
  geometry.holders.assign(static_cast<size_t>(geometry.copies) * geometry.tensor * geometry.data,
                          {});
  for (const int rank : step.ranks()) {
    for (int copy = 0; copy < geometry.copies; ++copy) {
      if (!family.Belongs(rank, copies[copy])) continue;
      const int t = family.TensorOf(rank);
      const int d = family.DataOf(rank);
      Holder& holder =
          geometry.holders[(static_cast<size_t>(copy) * geometry.tensor + t) * geometry.data + d];
      if (holder.rank >= 0) {
        geometry.conflict = absl::StrCat("ranks ", holder.rank, " and ", rank,
                                         " have the same place by the mesh in their files");
        continue;
      }
      holder.rank = rank;
      if (step.Find(rank, copies[copy].param, finalized).present())
        holder.param = copies[copy].param;
    }
  }
}

}  // namespace

bool ParamGeometry::complete() const {
  return std::all_of(holders.begin(), holders.end(),
                     [](const Holder& holder) { return holder.present(); });
}

const Holder& ParamGeometry::first() const {
  const auto present = std::find_if(holders.begin(), holders.end(),
                                    [](const Holder& holder) { return holder.present(); });
  SUMONCE_CHECK(present != holders.end()) << "nobody holds " << name();
  return *present;
}

std::string KindOf(const std::string& name) {
  std::string kind;
  size_t begin = 0;
  while (begin <= name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    std::string part = name.substr(begin, end - begin);
    const bool number = !part.empty() && part.find_first_not_of(kDigits) == part.npos;
    // Grouped experts: weight0, weight1, ...
    const size_t letters = part.find_last_not_of(kDigits) + 1;
    const bool of_group = end == name.size() && (part.substr(0, letters) == "weight" ||
                                                 part.substr(0, letters) == "bias");
    if (number) part = "*";
    if (of_group && letters < part.size()) part = part.substr(0, letters) + "*";
    absl::StrAppend(&kind, begin == 0 ? "" : ".", part);
    begin = end + 1;
  }
  return kind;
}

bool IsExpertName(const std::string& name) {
  return name.starts_with("experts.") || name.find(".experts.") != name.npos;
}

std::vector<ParamGeometry> GeometriesOf(const Step& step) {
  int finalized = step.KindNumber("finalized");
  if (finalized < 0) finalized = step.KindNumber("probe_finalized");
  // Copies by the name that they are tied to.
  std::map<std::string, std::set<Copy>> by_name;
  for (const int rank : step.ranks()) {
    const Manifest& common = step.Common(rank);
    const Manifest& identity = step.Identity(rank);
    for (int param = 0; param < static_cast<int>(step.params().size()); ++param) {
      if (!step.Find(rank, param, finalized).present()) continue;
      const std::string& name = step.params()[param];
      const auto tied = common.tied.find(name);
      const bool expert = IsExpertName(name);
      by_name[tied == common.tied.end() ? name : tied->second].insert(
          {.param = param,
           .pp = identity.Coordinate("pp"),
           .ep = expert ? identity.Coordinate("ep") : 0});
    }
  }
  const Family dense(step, false);
  const Family experts(step, true);
  std::vector<ParamGeometry> geometries;
  for (const auto& [name, set] : by_name) {
    ParamGeometry geometry;
    const std::vector<Copy> copies(set.begin(), set.end());
    geometry.names.push_back(name);
    for (const Copy& copy : copies) {
      if (std::find(geometry.names.begin(), geometry.names.end(), step.params()[copy.param]) ==
          geometry.names.end())
        geometry.names.push_back(step.params()[copy.param]);
    }
    geometry.kind = KindOf(name);
    geometry.expert = IsExpertName(name);
    const Family& family = geometry.expert ? experts : dense;
    geometry.copies = static_cast<int>(copies.size());
    geometry.tensor = family.tensor();
    geometry.data = family.data();
    geometry.data_axes = family.sizes();
    geometry.data_axis_names = family.axes();
    PlaceHolders(step, family, copies, finalized, geometry);
    geometry.data_axis = NameDataAxis(step, geometry);
    const Holder& first = geometry.first();
    FindCut(step.Common(first.rank), step.params()[first.param], geometry);
    if (geometry.conflict.empty()) CompareCuts(step, geometry);
    geometries.push_back(std::move(geometry));
  }
  return geometries;
}

}  // namespace sumonce::capture

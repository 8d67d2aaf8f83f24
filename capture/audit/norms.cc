#include "capture/audit/norms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "capture/lint/module_kinds.h"

namespace sumonce::capture {
namespace {

constexpr double kNormTolerance = 5e-4;  // a norm is summed in float32 over millions of elements

// Trainable parameters without a gradient in the files: the capture was asked for some only.
std::string NotCaptured(const Step& step) {
  for (const int rank : step.ranks()) {
    const int finalized = step.KindNumber("finalized");
    for (const auto& [name, param] : step.Common(rank).params) {
      if (!param.requires_grad) continue;
      if (!step.Find(rank, step.ParamNumber(name), finalized).present())
        return absl::StrCat("the files do not hold every parameter's gradient (", name, ")");
    }
  }
  return "";
}

// Megatron counts, on each rank, what is no duplicate by the marks; then sums over the model
// parallel ranks, experts (allreduce=False) over those of one expert data-parallel coordinate.
// get_grad_norm_fp32 and param_is_not_tensor_parallel_duplicate, megatron/core/optimizer.
class MarkedNorm {
 public:
  MarkedNorm(const Step& step, int rank) : step_(step) {
    const std::vector<int> model_parallel =
        step.Identity(rank).owned.has_value() ? step.ranks() : GroupOf(step, rank, "mp");
    dense_.insert(model_parallel.begin(), model_parallel.end());
    for (const int other : step.ranks()) {
      const bool same =
          step.Identity(other).Coordinate("edp") == step.Identity(rank).Coordinate("edp");
      if (same || step.Identity(rank).owned) experts_.insert(other);
    }
  }

  bool known() const { return !dense_.empty(); }

  bool Counts(const Holder& holder) const {
    const Manifest& common = step_.Common(holder.rank);
    const auto param = common.params.find(step_.params()[holder.param]);
    if (param == common.params.end()) return false;
    const Attributes& marks = param->second.marks;
    if (IsSet(marks, "shared")) return false;
    const bool expert = !FlagOf(marks, "allreduce").value_or(true);
    if (!(expert ? experts_ : dense_).contains(holder.rank)) return false;
    return IsSet(marks, "tensor_model_parallel") ||
           step_.Identity(holder.rank).Coordinate(expert && LooksAtEtp(common) ? "etp" : "tp") == 0;
  }

 private:
  // From 0.19 on copies of what is reduced with the experts are told apart by the rank in etp.
  static bool LooksAtEtp(const Manifest& common) {
    const auto version = common.framework.find("megatron-core");
    return version != common.framework.end() &&
           lint::VersionNumbers(version->second) >= std::vector<int>{0, 19};
  }

  static std::vector<int> GroupOf(const Step& step, int rank, const std::string& name) {
    const auto lists = step.Common(rank).groups.find(name);
    if (lists == step.Common(rank).groups.end()) return {};
    for (const std::vector<int>& list : lists->second) {
      if (std::find(list.begin(), list.end(), rank) != list.end()) return list;
    }
    return {};
  }

  const Step& step_;
  std::set<int> dense_, experts_;
};

// The norm that the first rank recorded which recorded any, and whether others have another one.
void TakeRecorded(const Step& step, NormFigures& norms) {
  int first = -1;
  for (const int rank : step.ranks()) {
    const std::optional<double>& norm = step.Identity(rank).grad_norm;
    if (!norm) continue;
    if (first < 0) {
      first = rank;
      norms.recorded = norm;
    }
    const double greatest = std::max(std::fabs(*norm), std::fabs(*norms.recorded));
    if (std::fabs(*norm - *norms.recorded) <= kNormTolerance * greatest) continue;
    if (std::isnan(*norm) && std::isnan(*norms.recorded)) continue;
    norms.apart = absl::StrFormat(
        "the ranks recorded different norms, %.6g on rank %d and %.6g on "
        "rank %d: each clips by its own",
        *norms.recorded, first, *norm, rank);
    return;
  }
}

}  // namespace

NormFigures NormsOf(const Step& step, const std::vector<ParamGeometry>& geometries,
                    const std::vector<std::vector<HolderFigures>>& figures) {
  NormFigures norms;
  norms.step = step.step();
  const int rank = step.ranks().front();
  TakeRecorded(step, norms);
  if (!norms.recorded) return norms;
  norms.not_comparable = step.missing().empty() ? NotCaptured(step) : "files of ranks are missing";
  if (!norms.not_comparable.empty()) return norms;
  const MarkedNorm marked(step, rank);
  double once = 0, implied = 0;
  for (size_t i = 0; i < geometries.size(); ++i) {
    const ParamGeometry& geometry = geometries[i];
    if (figures[i].empty()) {
      norms.not_comparable = absl::StrCat("the files contradict each other on ", geometry.name());
      return norms;
    }
    if (geometry.tensor > 1 && geometry.cut == CutKnown::kUnknown) {
      norms.not_comparable =
          absl::StrCat("whether ", geometry.name(), " is cut or replicated is not known");
      return norms;
    }
    const bool cut = geometry.cut == CutKnown::kShard;
    std::set<int> seen;  // places along the tensor axis whose copy was counted
    double counted = 0, own = 0;
    for (int h = 0; h < geometry.count(); ++h) {
      const Holder& holder = geometry.holders[h];
      if (!holder.present()) continue;
      const double square = figures[i][h].finalized_square;
      const bool parts = step.Identity(holder.rank).owned.has_value();
      const int place = cut ? geometry.TensorOf(h) : 0;
      const bool first_copy = geometry.CopyOf(h) == 0 && (cut || geometry.TensorOf(h) == 0);
      if (first_copy && (parts || seen.insert(place).second)) own += square;
      if (marked.Counts(holder)) counted += square;
    }
    once += own;
    implied += counted;
    if (own > 0 && std::fabs(counted / own - 1) > kNormTolerance)
      norms.counted_often.push_back(
          absl::StrCat(geometry.name(), " times ", std::round(100 * counted / own) / 100));
  }
  norms.counted_once = std::sqrt(once);
  if (marked.known()) norms.implied = std::sqrt(implied);
  const double greatest = std::max(*norms.recorded, *norms.counted_once);
  norms.miscounted = !std::isfinite(*norms.recorded) ||
                     std::fabs(*norms.recorded - *norms.counted_once) > kNormTolerance * greatest;
  return norms;
}

}  // namespace sumonce::capture

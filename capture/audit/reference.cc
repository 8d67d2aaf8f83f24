#include "capture/audit/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/audit/kernels.h"
#include "capture/folder.h"

namespace sumonce::capture {
namespace {

constexpr int64_t kComparedDoubles = 1 << 20;
constexpr int64_t kComparedAtLeast = 1 << 12;
constexpr int64_t kMaxRows = int64_t{1} << 22;
// A row that agrees to this is right.
constexpr double kRowRight = 1e-3;

// x against g, element by element.
void Add(const double* x, const double* g, int64_t count, double factor, Against& sums) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = factor * x[i];
    sums.x_square += value * value;
    sums.g_square += g[i] * g[i];
    sums.product += value * g[i];
    sums.difference += (value - g[i]) * (value - g[i]);
  }
}

class Comparer {
 public:
  Comparer(const Reference& reference, const ParamGeometry& theirs, const Step& step,
           const ParamGeometry& geometry, const Measure& measure, const MeasureOptions& options)
      : reference_(reference),
        theirs_(theirs),
        step_(step),
        geometry_(geometry),
        measure_(measure),
        options_(options) {}

  absl::StatusOr<ReferenceFigures> Run() {
    const int holders = geometry_.count();
    figures_.finalized.resize(holders);
    figures_.own.resize(geometry_.tensor);
    figures_.sum.resize(geometry_.tensor);
    if (!FindCuts()) return std::move(figures_);
    contribution_.resize(holders);
    finalized_.resize(holders);
    for (int h = 0; h < holders; ++h) {
      const Holder& holder = geometry_.holders[h];
      if (!holder.present()) {
        figures_.finalized[h].x_square = -1;
        continue;
      }
      contribution_[h] = step_.Find(holder.rank, holder.param, step_.KindNumber("contribution"));
      finalized_[h] = step_.Find(holder.rank, holder.param, step_.KindNumber("finalized"));
    }
    figures_.contributions = geometry_.complete() && !measure_.contributions_missing;
    row_ = measure_.shape.size() == 2 && measure_.shape[0] * holders <= kMaxRows ? measure_.shape[1]
                                                                                 : 0;
    if (row_ > 0) rows_.resize(holders * measure_.shape[0]);
    const int64_t all = theirs_cut_->whole_count();
    const int64_t chunk = std::max(kComparedDoubles / std::max(holders, 1), kComparedAtLeast);
    for (int64_t begin = 0; begin < all && figures_.problem.empty(); begin += chunk)
      SUMONCE_RETURN_IF_ERROR(Process(begin, std::min(chunk, all - begin)));
    CountRows();
    return std::move(figures_);
  }

 private:
  bool FindCuts() {
    const Step& reference = reference_.step();
    const Holder& first = theirs_.first();
    const std::vector<int64_t> local =
        reference.ShapeOf(first.rank, first.param, reference.KindNumber("finalized"));
    if (theirs_.tensor > 1 && theirs_.cut == CutKnown::kUnknown) {
      return Problem(absl::InvalidArgumentError("how it is cut over tp is not known (`layout`)"),
                     "in the reference, ");
    }
    const absl::StatusOr<CutMap> theirs =
        theirs_.cut == CutKnown::kShard && theirs_.tensor > 1
            ? CutMap::Create(local, *theirs_.layout, theirs_.tensor)
            : CutMap::Whole(local);
    if (!theirs.ok()) return Problem(theirs.status(), "in the reference, ");
    theirs_cut_ = *theirs;
    const absl::StatusOr<CutMap> ours =
        CutOf(geometry_, measure_.shape, theirs_cut_->whole_shape(local));
    if (!ours.ok()) return Problem(ours.status(), "");
    cut_ = *ours;
    figures_.cut = cut_->parts() > 1;
    return true;
  }

  bool Problem(const absl::Status& status, const std::string& where) {
    figures_.problem = absl::StrCat(where, status.message());
    return false;
  }

  absl::Status Process(int64_t begin, int64_t count) {
    SUMONCE_RETURN_IF_ERROR(reference_.Read(theirs_, *theirs_cut_, begin, count, whole_));
    for (int64_t i = 0; i < count && figures_.zero; ++i) figures_.zero = whole_[i] == 0;
    if (!std::isfinite(SumOfSquares(whole_.data(), count))) {
      figures_.problem = "the reference's gradient is not finite";
      return absl::OkStatus();
    }
    const bool cut = cut_->parts() > 1;
    // Places along the tensor axis, each with its own part of the whole, or with all of it.
    std::vector<std::vector<double>> own(geometry_.tensor);
    std::vector<std::vector<double>> parts(geometry_.tensor);
    for (int t = 0; t < geometry_.tensor; ++t) {
      const CutMap::Range range = cut_->InWhole(cut ? t : 0, begin, begin + count);
      parts[t].resize(range.count);
      cut_->ForEachRun(cut ? t : 0, begin, begin + count,
                       [&](int64_t in_whole, int64_t in_shard, int64_t length) {
                         std::copy_n(whole_.begin() + (in_whole - begin), length,
                                     parts[t].begin() + (in_shard - range.begin));
                       });
      own[t].assign(range.count, 0.0);
      for (int h = 0; h < geometry_.count(); ++h) {
        if (geometry_.TensorOf(h) == t && range.count > 0)
          SUMONCE_RETURN_IF_ERROR(AddHolder(h, range, parts[t], own[t]));
      }
    }
    if (!figures_.contributions) return absl::OkStatus();
    std::vector<double> sum;
    if (!cut && geometry_.tensor > 1) {
      sum.assign(own[0].size(), 0.0);
      for (const std::vector<double>& terms : own) {
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += terms[i];
      }
    }
    for (int t = 0; t < geometry_.tensor; ++t) {
      const auto length = static_cast<int64_t>(own[t].size());
      Add(own[t].data(), parts[t].data(), length, options_.kappa, figures_.own[t]);
      if (!sum.empty()) Add(sum.data(), parts[t].data(), length, options_.kappa, figures_.sum[t]);
    }
    return absl::OkStatus();
  }

  absl::Status AddHolder(int h, const CutMap::Range& range, const std::vector<double>& part,
                         std::vector<double>& own) {
    const Holder& holder = geometry_.holders[h];
    if (!holder.present()) return absl::OkStatus();
    const TensorFile& file = step_.file(holder.rank);
    values_.resize(range.count);
    if (contribution_[h].present()) {
      SUMONCE_RETURN_IF_ERROR(
          file.Read(contribution_[h], range.begin, range.count, values_.data()));
      for (int64_t i = 0; i < range.count; ++i) own[i] += values_[i];
    }
    int64_t from = range.begin, to = range.begin + range.count, first = 0;
    if (const auto& owned = step_.Identity(holder.rank).owned) {
      const auto mine = owned->find(step_.params()[holder.param]);
      if (mine == owned->end()) return absl::OkStatus();
      from = std::max(from, mine->second.begin);
      to = std::min(to, mine->second.end);
      if (finalized_[h].count != measure_.elements) first = mine->second.begin;
    }
    if (from >= to) return absl::OkStatus();
    SUMONCE_RETURN_IF_ERROR(file.Read(finalized_[h], from - first, to - from, values_.data()));
    const double* expected = part.data() + (from - range.begin);
    Add(values_.data(), expected, to - from, 1, figures_.finalized[h]);
    if (row_ == 0) return absl::OkStatus();
    for (int64_t i = from; i < to; ++i)
      Add(values_.data() + (i - from), expected + (i - from), 1, 1,
          rows_[h * measure_.shape[0] + i / row_]);
    return absl::OkStatus();
  }

  void CountRows() {
    for (const Against& row : rows_) {
      if (row.g_square == 0 && row.x_square == 0) continue;
      if (row.error() <= kRowRight) {
        ++figures_.rows_right;
      } else {
        ++figures_.rows_wrong;
      }
    }
  }

  const Reference& reference_;
  const ParamGeometry& theirs_;
  const Step& step_;
  const ParamGeometry& geometry_;
  const Measure& measure_;
  const MeasureOptions& options_;
  ReferenceFigures figures_;
  std::optional<CutMap> cut_, theirs_cut_;
  std::vector<StoredTensor> contribution_, finalized_;
  std::vector<double> whole_, values_;
  int64_t row_ = 0;  // elements of a row; 0: rows are not counted
  std::vector<Against> rows_;
};

}  // namespace

double Against::ratio() const {
  return g_square == 0 ? (x_square == 0 ? 1 : std::numeric_limits<double>::infinity())
                       : std::sqrt(x_square / g_square);
}

double Against::coefficient() const { return g_square == 0 ? 0 : product / g_square; }

double Against::misfit() const {
  if (x_square == 0) return 0;
  const double a = coefficient();
  return std::sqrt(std::max(0.0, x_square - 2 * a * product + a * a * g_square) / x_square);
}

double Against::error() const {
  if (g_square == 0) return x_square == 0 ? 0 : std::numeric_limits<double>::infinity();
  return std::sqrt(difference / g_square);
}

double Against::ErrorOf(double factor) const {
  if (g_square == 0 || factor == 0) return error();
  if (factor == 1) return error();
  const double square = std::max(0.0, x_square - 2 * factor * product + factor * factor * g_square);
  return std::sqrt(square / g_square) / std::fabs(factor);
}

absl::StatusOr<Reference> Reference::Open(const std::string& path, int64_t step) {
  SUMONCE_ASSIGN_OR_RETURN(const std::vector<StepFolder> folders, ListCapture(path));
  for (const StepFolder& folder : folders) {
    if (folder.step != step) continue;
    SUMONCE_ASSIGN_OR_RETURN(Step opened, Step::Open(folder));
    if (!opened.missing().empty()) {
      std::vector<std::string> texts;
      for (const FileFault& fault : opened.faults()) texts.push_back(fault.text);
      return absl::InvalidArgumentError(absl::StrCat(
          folder.path, ": a reference must be whole; files of rank ", RanksText(opened.missing()),
          " are missing", texts.empty() ? "" : "\n", absl::StrJoin(texts, "\n")));
    }
    Reference reference(std::move(opened));
    for (ParamGeometry& geometry : GeometriesOf(reference.step_)) {
      std::string name = geometry.name();
      reference.geometries_.emplace(std::move(name), std::move(geometry));
    }
    return reference;
  }
  return absl::NotFoundError(absl::StrCat(path, ": has no step ", step));
}

const ParamGeometry* Reference::Find(const ParamGeometry& geometry) const {
  for (const std::string& name : geometry.names) {
    const auto entry = geometries_.find(name);
    if (entry != geometries_.end()) return &entry->second;
  }
  return nullptr;
}

absl::Status Reference::Read(const ParamGeometry& geometry, const CutMap& cut, int64_t begin,
                             int64_t count, std::vector<double>& out) const {
  out.assign(count, 0.0);
  const int finalized = step_.KindNumber("finalized");
  std::vector<double> shard;
  for (int t = 0; t < cut.parts(); ++t) {
    const CutMap::Range range = cut.InWhole(t, begin, begin + count);
    if (range.count == 0) continue;
    shard.assign(range.count, 0.0);
    // The first copy; with a distributed optimizer each rank its part.
    for (int d = 0; d < geometry.data; ++d) {
      const Holder& holder = geometry.at(0, t, d);
      const StoredTensor tensor = step_.Find(holder.rank, holder.param, finalized);
      int64_t from = range.begin, to = range.begin + range.count, first = 0;
      const auto& owned = step_.Identity(holder.rank).owned;
      if (owned) {
        const auto mine = owned->find(step_.params()[holder.param]);
        if (mine == owned->end()) continue;
        from = std::max(from, mine->second.begin);
        to = std::min(to, mine->second.end);
        if (tensor.count == mine->second.end - mine->second.begin) first = mine->second.begin;
      }
      to = std::min(to, first + tensor.count);
      if (from < to) {
        SUMONCE_RETURN_IF_ERROR(
            step_.file(holder.rank)
                .Read(tensor, from - first, to - from, shard.data() + (from - range.begin)));
      }
      if (!owned) break;
    }
    cut.ForEachRun(t, begin, begin + count,
                   [&](int64_t in_whole, int64_t in_shard, int64_t length) {
                     std::copy_n(shard.begin() + (in_shard - range.begin), length,
                                 out.begin() + (in_whole - begin));
                   });
  }
  return absl::OkStatus();
}

absl::StatusOr<ReferenceFigures> Reference::Compare(const Step& step, const ParamGeometry& geometry,
                                                    const Measure& measure,
                                                    const MeasureOptions& options) const {
  const ParamGeometry* theirs = Find(geometry);
  ReferenceFigures none;
  if (theirs == nullptr) {
    none.problem = "the reference does not have it";
    return none;
  }
  if (!theirs->complete() || !theirs->conflict.empty()) {
    none.problem = "the reference does not hold all of it";
    return none;
  }
  return Comparer(*this, *theirs, step, geometry, measure, options).Run();
}

absl::StatusOr<CutMap> CutOf(const ParamGeometry& geometry, const std::vector<int64_t>& local,
                             const std::vector<int64_t>& whole) {
  const auto differ = [&](const std::vector<int64_t>& shape) {
    return absl::InvalidArgumentError(absl::StrCat("its shape [", absl::StrJoin(shape, ", "),
                                                   "] joined is not the reference's [",
                                                   absl::StrJoin(whole, ", "), "]"));
  };
  if (geometry.cut == CutKnown::kShard && geometry.tensor > 1) {
    absl::StatusOr<CutMap> cut = CutMap::Create(local, *geometry.layout, geometry.tensor);
    if (cut.ok() && cut->whole_shape(local) != whole) return differ(cut->whole_shape(local));
    return cut;
  }
  if (local == whole) return CutMap::Whole(local);
  if (geometry.cut == CutKnown::kReplicated || local.size() != whole.size() || geometry.tensor == 1)
    return differ(local);
  ParamLayout layout;
  int cuts = 0;
  for (size_t dim = 0; dim < local.size(); ++dim) {
    if (local[dim] == whole[dim]) continue;
    ++cuts;
    layout.dim = static_cast<int>(dim);
    if (local[dim] * geometry.tensor != whole[dim]) return differ(local);
  }
  if (cuts != 1) return differ(local);
  return CutMap::Create(local, layout, geometry.tensor);
}

}  // namespace sumonce::capture

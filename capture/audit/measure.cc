#include "capture/audit/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/audit/kernels.h"
#include "capture/audit/measure_lines.h"

namespace sumonce::capture {
namespace {

constexpr int64_t kChunkDoubles = 1 << 20;  // of c, and as many of f
constexpr int64_t kMinChunk = 256;
constexpr int64_t kWeightBytes = 1 << 20;  // of a weight, compared at once
constexpr int64_t kMaxChunk = 1 << 15;

double Smallest(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-1022;
    case DType::kFloat16:
      return 0x1p-24;
    case DType::kFloat8E4M3:
      return 0x1p-9;
    case DType::kFloat8E5M2:
      return 0x1p-16;
    default:
      return 0x1p-126;
  }
}

// What is known of one holder's tensors.
struct Source {
  const TensorFile* file = nullptr;  // null: absent
  StoredTensor contribution, finalized, weight, weight_after;
  int64_t owned_begin = 0, owned_end = 0;
  int64_t finalized_begin = 0;  // the element of the parameter that f begins with
};

// The differences along one axis, against the holder at its first present place.
struct AlongAxis {
  std::vector<int> base;           // by holder; -1: it is the base, or absent
  std::vector<double> difference;  // squares, by holder
  Likeness Result(const std::vector<double>& squares, const LikenessLimits& limits) const;
};

Likeness AlongAxis::Result(const std::vector<double>& squares, const LikenessLimits& limits) const {
  bool compared = false;
  bool zero = true;
  double worst = 0;
  for (size_t h = 0; h < base.size(); ++h) {
    if (base[h] < 0) continue;
    compared = true;
    const double greatest = std::max(squares[h], squares[base[h]]);
    if (greatest == 0) continue;
    zero = false;
    worst = std::max(worst, std::sqrt(difference[h] / greatest));
  }
  if (!compared) return Likeness::kUnknown;
  if (zero) return Likeness::kZero;
  if (worst <= limits.equal) return Likeness::kEqual;
  return worst >= limits.unequal ? Likeness::kUnequal : Likeness::kNear;
}

class Measurer {
 public:
  Measurer(const Step& step, const ParamGeometry& geometry, const MeasureOptions& options)
      : step_(step), geometry_(geometry), options_(options) {}

  absl::StatusOr<Measure> Run() {
    FindSources();
    if (measure_.shapes_differ) return std::move(measure_);
    Prepare();
    for (int64_t begin = 0; begin < measure_.elements; begin += chunk_)
      SUMONCE_RETURN_IF_ERROR(Process(begin, std::min(chunk_, measure_.elements - begin)));
    Conclude();
    SUMONCE_RETURN_IF_ERROR(CompareWeights(&Source::weight, measure_.weights));
    SUMONCE_RETURN_IF_ERROR(CompareWeights(&Source::weight_after, measure_.weights_after));
    return std::move(measure_);
  }

 private:
  int holders() const { return geometry_.count(); }
  double* C(int holder) { return c_.data() + holder * chunk_; }
  double* F(int holder) { return f_.data() + holder * chunk_; }

  void FindSources() {
    const int contribution = step_.KindNumber(options_.contribution);
    const int finalized = step_.KindNumber(options_.finalized);
    const int weight = step_.KindNumber("weight");
    const int weight_after = step_.KindNumber("weight_after");
    sources_.resize(holders());
    measure_.holders.resize(holders());
    std::vector<std::string> shapes;
    for (int h = 0; h < holders(); ++h) {
      const Holder& holder = geometry_.holders[h];
      if (!holder.present()) continue;
      Source& source = sources_[h];
      source.file = &step_.file(holder.rank);
      source.contribution = step_.Find(holder.rank, holder.param, contribution);
      source.finalized = step_.Find(holder.rank, holder.param, finalized);
      source.weight = step_.Find(holder.rank, holder.param, weight);
      source.weight_after = step_.Find(holder.rank, holder.param, weight_after);
      const bool has_contribution = source.contribution.present();
      if (!has_contribution) measure_.contributions_missing = true;
      const std::vector<int64_t> shape =
          step_.ShapeOf(holder.rank, holder.param, has_contribution ? contribution : finalized);
      shapes.push_back(absl::StrCat("[", absl::StrJoin(shape, ", "), "] on rank ", holder.rank));
      if (shapes.size() == 1) {
        measure_.shape = shape;
        measure_.elements = has_contribution ? source.contribution.count : source.finalized.count;
        measure_.dtype = source.finalized.dtype;
      }
      measure_.shapes_differ |= shape != measure_.shape;
      measure_.roundoff = std::max(measure_.roundoff, UnitRoundoff(source.finalized.dtype));
      if (has_contribution) {
        measure_.roundoff = std::max(measure_.roundoff, UnitRoundoff(source.contribution.dtype));
      }
      FindOwned(step_.params()[holder.param], holder.rank, source);
    }
    measure_.shapes_text = absl::StrJoin(shapes, ", ");
  }

  void FindOwned(const std::string& name, int rank, Source& source) {
    source.owned_end = measure_.elements;
    const auto& owned = step_.Identity(rank).owned;
    if (owned) {
      any_owned_ = true;
      const auto range = owned->find(name);
      const OwnedRange none;
      const OwnedRange& mine = range == owned->end() ? none : range->second;
      source.owned_begin = std::min(mine.begin, measure_.elements);
      source.owned_end = std::min(mine.end, measure_.elements);
      // Some frameworks keep nothing but the part that is owned.
      if (source.finalized.count == mine.end - mine.begin &&
          source.finalized.count != measure_.elements)
        source.finalized_begin = source.owned_begin;
    }
    if (source.owned_end > source.finalized_begin + source.finalized.count)
      measure_.shapes_differ = true;
  }

  void Prepare() {
    const int h = holders();
    chunk_ = std::clamp(kChunkDoubles / std::max(h, 1), kMinChunk, kMaxChunk);
    chunk_ = std::min(chunk_, std::max<int64_t>(measure_.elements, 1));
    c_.resize(static_cast<size_t>(h) * chunk_);
    f_.resize(static_cast<size_t>(h) * chunk_);
    own_sum_.resize(static_cast<size_t>(geometry_.tensor) * chunk_);
    own_magnitude_.resize(own_sum_.size());
    sum_.resize(chunk_);
    magnitude_.resize(chunk_);
    c_square_.assign(h, 0);
    f_square_.assign(h, 0);
    // Bases along each axis: the first present holder that differs in that coordinate only.
    const auto bases = [&](auto coordinate_of, auto with) {
      AlongAxis along;
      along.base.assign(h, -1);
      along.difference.assign(h, 0);
      for (int holder = 0; holder < h; ++holder) {
        if (!sources_[holder].file) continue;
        for (int i = 0; i < coordinate_of(holder); ++i) {
          const int other = with(holder, i);
          if (!sources_[other].file) continue;
          along.base[holder] = other;
          break;
        }
      }
      return along;
    };
    const int data = geometry_.data;
    along_tensor_ = bases([&](int x) { return geometry_.TensorOf(x); },
                          [&](int x, int i) { return x - (geometry_.TensorOf(x) - i) * data; });
    f_along_tensor_ = along_tensor_;
    f_along_rest_ =
        bases([&](int x) { return geometry_.CopyOf(x) * data + geometry_.DataOf(x); },
              [&](int x, int i) {
                return (i / data * geometry_.tensor + geometry_.TensorOf(x)) * data + i % data;
              });
    int stride = 1;
    for (const int size : geometry_.data_axes) {
      const int s = stride;
      along_data_.push_back(
          bases([&](int x) { return geometry_.DataOf(x) / s % size; },
                [&](int x, int i) { return x - (geometry_.DataOf(x) / s % size - i) * s; }));
      stride *= size;
    }
    complete_own_.assign(geometry_.tensor, true);
    for (int holder = 0; holder < h; ++holder) {
      if (!sources_[holder].file || !sources_[holder].contribution.present())
        complete_own_[geometry_.TensorOf(holder)] = false;
    }
    complete_ = std::all_of(complete_own_.begin(), complete_own_.end(), [](bool c) { return c; });
    if (geometry_.cut != CutKnown::kShard && geometry_.tensor > 1) lines_.Prepare(measure_.shape);
    SetBounds();
  }

  void SetBounds() {
    const int own_terms = geometry_.copies * geometry_.data;
    const int terms = own_terms * geometry_.tensor;
    const auto bound = [&](double factor, int of_terms) {
      const double roundoff = measure_.roundoff;
      return FitBound{.factor = factor,
                      .relative = options_.rtol.value_or(RoundingBound(roundoff, of_terms)),
                      .absolute = (of_terms + 4) * Smallest(measure_.dtype)};
    };
    const double kappa = options_.kappa;
    bounds_ = {bound(kappa, own_terms), bound(kappa, terms), bound(kappa / geometry_.tensor, terms),
               bound(1, 1), bound(kappa, 1)};
  }

  absl::Status Process(int64_t begin, int64_t count) {
    for (int h = 0; h < holders(); ++h) {
      const Source& source = sources_[h];
      if (!source.file) continue;
      if (source.contribution.present())
        SUMONCE_RETURN_IF_ERROR(source.file->Read(source.contribution, begin, count, C(h)));
      std::fill(F(h), F(h) + count, 0.0);
      const int64_t first = std::max(begin, source.owned_begin);
      const int64_t last = std::min(begin + count, source.owned_end);
      if (first < last) {
        SUMONCE_RETURN_IF_ERROR(source.file->Read(source.finalized, first - source.finalized_begin,
                                                  last - first, F(h) + (first - begin)));
      }
      TakeSquares(h, begin, count);
    }
    Compare(count);
    lines_.Add(begin, count, along_tensor_.base, [this](int h) { return C(h); });
    Sum(count);
    for (int h = 0; h < holders(); ++h) CheckFits(h, begin, count);
    return absl::OkStatus();
  }

  void TakeSquares(int h, int64_t begin, int64_t count) {
    HolderFigures& figures = measure_.holders[h];
    if (sources_[h].contribution.present()) {
      const double square = SumOfSquares(C(h), count);
      c_square_[h] += square;
      if (!std::isfinite(square)) FindNotFinite("contribution", h, C(h), begin, count);
    }
    const double square = SumOfSquares(F(h), count);
    f_square_[h] += square;
    if (!std::isfinite(square)) FindNotFinite("finalized", h, F(h), begin, count);
    figures.contribution_square = c_square_[h];
    figures.finalized_square = f_square_[h];
    figures.owned = sources_[h].owned_end - sources_[h].owned_begin;
  }

  void FindNotFinite(const char* kind, int h, const double* values, int64_t begin, int64_t count) {
    if (!measure_.not_finite.empty()) return;
    for (int64_t i = 0; i < count; ++i) {
      if (std::isfinite(values[i])) continue;
      std::vector<int64_t> index;
      int64_t rest = begin + i;
      for (size_t dim = measure_.shape.size(); dim-- > 0;) {
        index.insert(index.begin(), rest % measure_.shape[dim]);
        rest /= measure_.shape[dim];
      }
      measure_.not_finite =
          absl::StrCat(kind, " on rank ", geometry_.holders[h].rank, " is ", values[i],
                       " at element [", absl::StrJoin(index, ", "), "]");
      return;
    }
  }

  void Compare(int64_t count) {
    const auto add = [&](AlongAxis& along, auto values) {
      for (int h = 0; h < holders(); ++h) {
        if (along.base[h] < 0) continue;
        const double *x = values(h), *y = values(along.base[h]);
        if (std::memcmp(x, y, count * sizeof(double)) == 0) continue;
        along.difference[h] += SumOfSquaredDifferences(x, y, count);
      }
    };
    const auto contribution = [this](int h) { return C(h); };
    const auto finalized = [this](int h) { return F(h); };
    add(along_tensor_, contribution);
    for (AlongAxis& along : along_data_) add(along, contribution);
    if (any_owned_) return;  // what a rank does not own is not comparable
    add(f_along_tensor_, finalized);
    add(f_along_rest_, finalized);
  }

  void Sum(int64_t count) {
    std::fill(own_sum_.begin(), own_sum_.end(), 0.0);
    std::fill(own_magnitude_.begin(), own_magnitude_.end(), 0.0);
    for (int h = 0; h < holders(); ++h) {
      if (!sources_[h].contribution.present()) continue;
      const int64_t at = geometry_.TensorOf(h) * chunk_;
      AddTerm(C(h), count, own_sum_.data() + at, own_magnitude_.data() + at);
    }
    if (!complete_) return;
    std::copy_n(own_sum_.begin(), count, sum_.begin());
    std::copy_n(own_magnitude_.begin(), count, magnitude_.begin());
    for (int t = 1; t < geometry_.tensor; ++t) {
      for (int64_t i = 0; i < count; ++i) {
        sum_[i] += own_sum_[t * chunk_ + i];
        magnitude_[i] += own_magnitude_[t * chunk_ + i];
      }
    }
  }

  void CheckFits(int h, int64_t begin, int64_t count) {
    const Source& source = sources_[h];
    if (!source.file) return;
    const int64_t first = std::max(begin, source.owned_begin) - begin;
    const int64_t last = std::min(begin + count, source.owned_end) - begin;
    if (first >= last) return;
    const auto check = [&](Fit fit, const double* sum, const double* magnitude) {
      misfits_[static_cast<int>(fit)] += CountMisfits(F(h) + first, sum + first, magnitude + first,
                                                      last - first, bounds_[static_cast<int>(fit)]);
    };
    const int t = geometry_.TensorOf(h);
    if (complete_own_[t])
      check(Fit::kOwn, own_sum_.data() + t * chunk_, own_magnitude_.data() + t * chunk_);
    if (complete_) {
      check(Fit::kSum, sum_.data(), magnitude_.data());
      check(Fit::kAvg, sum_.data(), magnitude_.data());
    }
    if (!source.contribution.present()) return;
    own_copy_.resize(chunk_);
    for (int64_t i = first; i < last; ++i) own_copy_[i] = std::fabs(C(h)[i]);
    if (misfits_[static_cast<int>(Fit::kRaw)] == 0) check(Fit::kRaw, C(h), own_copy_.data());
    if (misfits_[static_cast<int>(Fit::kScaled)] == 0) check(Fit::kScaled, C(h), own_copy_.data());
  }

  void Conclude() {
    const LikenessLimits limits = LimitsFor(measure_.roundoff);
    measure_.over_tensor = along_tensor_.Result(c_square_, limits);
    for (const AlongAxis& along : along_data_)
      measure_.over_data.push_back(along.Result(c_square_, limits));
    if (!any_owned_) {
      measure_.finalized_tensor = f_along_tensor_.Result(f_square_, limits);
      measure_.finalized_copies = f_along_rest_.Result(f_square_, limits);
    }
    for (int h = 0; h < holders(); ++h) {
      const Source& source = sources_[h];
      if (!source.file) continue;
      measure_.contributions_zero &= c_square_[h] == 0;
      measure_.finalized_zero &= f_square_[h] == 0;
      const bool own = complete_own_[geometry_.TensorOf(h)];
      measure_.checked[static_cast<int>(Fit::kOwn)] += own ? 1 : 0;
      measure_.checked[static_cast<int>(Fit::kSum)] += complete_ ? 1 : 0;
      measure_.checked[static_cast<int>(Fit::kAvg)] += complete_ ? 1 : 0;
      measure_.checked[static_cast<int>(Fit::kRaw)] += source.contribution.present() ? 1 : 0;
      measure_.checked[static_cast<int>(Fit::kScaled)] += source.contribution.present() ? 1 : 0;
    }
    for (int fit = 0; fit < kNumFits; ++fit)
      measure_.fits[fit] = measure_.checked[fit] > 0 && misfits_[fit] == 0;
    measure_.mismatched = misfits_[0];
    if (complete_) measure_.mismatched = std::min({misfits_[0], misfits_[1], misfits_[2]});
    lines_.Conclude(limits.equal * limits.equal, limits.unequal * limits.unequal, measure_);
  }

  // Weights are compared byte by byte: replicas are copies. Each with the first one at its place
  // along the tensor axis, and those with one another.
  using WeightOf = StoredTensor Source::*;
  absl::Status CompareWeights(WeightOf weight, WeightFigures& figures) {
    std::vector<const Source*> first_at(geometry_.tensor);
    const Source* base = nullptr;
    for (int h = 0; h < holders(); ++h) {
      const Source& source = sources_[h];
      if (!source.file) continue;
      const StoredTensor& tensor = source.*weight;
      if (!tensor.present() || tensor.count != measure_.elements) return absl::OkStatus();
      if (base == nullptr) base = &source;
      if (tensor.dtype != (base->*weight).dtype) return absl::OkStatus();
      const Source*& first = first_at[geometry_.TensorOf(h)];
      if (first == nullptr) first = &source;
    }
    if (base == nullptr || measure_.elements == 0) return absl::OkStatus();
    figures.known = figures.constant = figures.equal = figures.copies_equal = true;
    SUMONCE_RETURN_IF_ERROR(CheckConstant(*base, base->*weight, figures.constant));
    for (int h = 0; h < holders(); ++h) {
      const Source& source = sources_[h];
      const Source* first = first_at[geometry_.TensorOf(h)];
      if (!source.file || &source == first) continue;
      SUMONCE_RETURN_IF_ERROR(CompareWeight(weight, source, *first, figures.copies_equal));
    }
    for (const Source* first : first_at) {
      if (first != nullptr && first != base)
        SUMONCE_RETURN_IF_ERROR(CompareWeight(weight, *first, *base, figures.equal));
    }
    figures.equal = figures.equal && figures.copies_equal;
    return absl::OkStatus();
  }

  absl::Status CompareWeight(WeightOf weight, const Source& a, const Source& b, bool& equal) {
    const int64_t all = (a.*weight).bytes();
    std::vector<char> x(std::min(all, kWeightBytes)), y(x.size());
    for (int64_t begin = 0; begin < all && equal; begin += kWeightBytes) {
      const int64_t bytes = std::min(kWeightBytes, all - begin);
      SUMONCE_RETURN_IF_ERROR(a.file->ReadBytes((a.*weight).offset + begin, bytes, x.data()));
      SUMONCE_RETURN_IF_ERROR(b.file->ReadBytes((b.*weight).offset + begin, bytes, y.data()));
      equal = std::memcmp(x.data(), y.data(), bytes) == 0;
    }
    return absl::OkStatus();
  }

  absl::Status CheckConstant(const Source& source, const StoredTensor& weight, bool& constant) {
    const int64_t all = weight.bytes();
    const int64_t size = SizeOf(weight.dtype);
    std::vector<char> first(size), bytes(std::min(all, kWeightBytes));
    for (int64_t begin = 0; begin < all && constant; begin += kWeightBytes) {
      const int64_t count = std::min(kWeightBytes, all - begin);
      SUMONCE_RETURN_IF_ERROR(source.file->ReadBytes(weight.offset + begin, count, bytes.data()));
      if (begin == 0) std::copy_n(bytes.begin(), size, first.begin());
      for (int64_t at = 0; at < count && constant; at += size)
        constant = std::memcmp(bytes.data() + at, first.data(), size) == 0;
    }
    return absl::OkStatus();
  }

  const Step& step_;
  const ParamGeometry& geometry_;
  const MeasureOptions& options_;
  Measure measure_;
  std::vector<Source> sources_;
  bool any_owned_ = false;
  bool complete_ = true;
  std::vector<bool> complete_own_;  // by place along the tensor axis: all its terms are there
  int64_t chunk_ = 1;
  std::vector<double> c_, f_, own_sum_, own_magnitude_, sum_, magnitude_, own_copy_;
  std::vector<double> c_square_, f_square_;
  AlongAxis along_tensor_, f_along_tensor_, f_along_rest_;
  std::vector<AlongAxis> along_data_;
  std::array<FitBound, kNumFits> bounds_;
  std::array<int64_t, kNumFits> misfits_ = {};
  LineMeasurer lines_;
};

}  // namespace

absl::StatusOr<Measure> MeasureParam(const Step& step, const ParamGeometry& geometry,
                                     const MeasureOptions& options) {
  return Measurer(step, geometry, options).Run();
}

double RoundingBound(double roundoff, int terms) { return (terms + 4) * roundoff; }

LikenessLimits LimitsFor(double roundoff) {
  if (roundoff <= 0x1p-20) return {.equal = 1e-4, .unequal = 1e-3};
  return {.equal = 4 * roundoff, .unequal = 16 * roundoff};
}

}  // namespace sumonce::capture

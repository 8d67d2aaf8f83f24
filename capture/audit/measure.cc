#include "capture/audit/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "capture/audit/kernels.h"
#include "capture/audit/measure_lines.h"
#include "capture/audit/weights.h"

namespace sumonce::capture {
namespace {

constexpr int64_t kChunkDoubles = 1 << 20;  // of c, and as many of f
constexpr int64_t kMinChunk = 256;
constexpr int64_t kAheadElements = 1 << 20;
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

// The elements at hand, kept from one parameter to the next: taking memory anew costs more than the
// sums do.
struct Room {
  std::vector<double> contribution, finalized, own_sum, own_magnitude, sum, magnitude,
      term_magnitude;

  static Room& OfThread() {
    thread_local Room room;
    return room;
  }
  void Grow(int holders, int tensor, int64_t chunk) {
    const auto grow = [chunk](std::vector<double>& values, int times) {
      const size_t size = static_cast<size_t>(times) * chunk;
      if (values.size() < size) values.resize(size);
    };
    for (std::vector<double>* values : {&contribution, &finalized}) grow(*values, holders);
    for (std::vector<double>* values : {&own_sum, &own_magnitude}) grow(*values, tensor);
    for (std::vector<double>* values : {&sum, &magnitude, &term_magnitude}) grow(*values, 1);
  }
};

// What is known of one holder's tensors.
struct Source {
  const TensorFile* file = nullptr;  // null: absent
  StoredTensor contribution, finalized;
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
      : step_(step), geometry_(geometry), options_(options), room_(Room::OfThread()) {}

  absl::StatusOr<Measure> Run() {
    FindSources();
    if (measure_.shapes_differ) return std::move(measure_);
    Prepare();
    for (int64_t begin = 0; begin < measure_.elements; begin += chunk_)
      SUMONCE_RETURN_IF_ERROR(Process(begin, std::min(chunk_, measure_.elements - begin)));
    Conclude();
    SUMONCE_RETURN_IF_ERROR(
        CompareWeights(step_, geometry_, "weight", measure_.elements, measure_.weights));
    SUMONCE_RETURN_IF_ERROR(CompareWeights(step_, geometry_, "weight_after", measure_.elements,
                                           measure_.weights_after));
    return std::move(measure_);
  }

 private:
  int holders() const { return geometry_.count(); }
  double* C(int holder) { return room_.contribution.data() + holder * chunk_; }
  double* F(int holder) { return room_.finalized.data() + holder * chunk_; }

  void FindSources() {
    const int contribution = step_.KindNumber(options_.contribution);
    const int finalized = step_.KindNumber(options_.finalized);
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
    room_.Grow(h, geometry_.tensor, chunk_);
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
    const bool complete =
        std::all_of(complete_own_.begin(), complete_own_.end(), [](bool c) { return c; });
    wants_sum_ = complete && geometry_.tensor > 1 && geometry_.cut != CutKnown::kShard;
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

  // The next pieces of every tensor, so that a disk is busy while the processor is.
  void ReadAhead(int64_t begin) {
    if (begin < ahead_) return;
    const int64_t from = std::max(begin, ahead_);
    ahead_ = begin + kAheadElements;
    for (const Source& source : sources_) {
      if (!source.file) continue;
      for (const StoredTensor* tensor : {&source.contribution, &source.finalized}) {
        const int64_t size = SizeOf(tensor->dtype);
        const int64_t count = std::min(from + 2 * kAheadElements, tensor->count) - from;
        if (tensor->present() && count > 0)
          source.file->WillRead(tensor->offset + from * size, count * size);
      }
    }
  }

  absl::Status Process(int64_t begin, int64_t count) {
    ReadAhead(begin);
    for (int h = 0; h < holders(); ++h) {
      const Source& source = sources_[h];
      if (!source.file) continue;
      if (source.contribution.present())
        SUMONCE_RETURN_IF_ERROR(source.file->Read(source.contribution, begin, count, C(h)));
      const int64_t first = std::max(begin, source.owned_begin);
      const int64_t last = std::min(begin + count, source.owned_end);
      if (last - first < count) std::fill_n(F(h), count, 0.0);
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
      measure_.not_finite = absl::StrCat(
          kind, " on rank ", geometry_.holders[h].rank, " is ", values[i], " at element [",
          absl::StrJoin(IndexOf(measure_.shape, begin + i), ", "), "]");
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

  // One term alone is its own sum.
  bool one_term() const { return geometry_.copies * geometry_.data == 1; }
  const double* Own(int t) { return one_term() ? C(t) : room_.own_sum.data() + t * chunk_; }
  double* OwnMagnitude(int t) { return room_.own_magnitude.data() + t * chunk_; }

  void Sum(int64_t count) {
    if (!one_term()) {
      for (int t = 0; t < geometry_.tensor; ++t) {
        std::fill_n(room_.own_sum.data() + t * chunk_, count, 0.0);
        std::fill_n(OwnMagnitude(t), count, 0.0);
      }
    }
    for (int h = 0; h < holders(); ++h) {
      if (!sources_[h].contribution.present()) continue;
      const int t = geometry_.TensorOf(h);
      if (one_term()) {
        TakeMagnitudes(C(h), count, OwnMagnitude(t));
      } else {
        AddTerm(C(h), count, room_.own_sum.data() + t * chunk_, OwnMagnitude(t));
      }
    }
    if (!wants_sum_) return;
    std::copy_n(Own(0), count, room_.sum.begin());
    std::copy_n(OwnMagnitude(0), count, room_.magnitude.begin());
    for (int t = 1; t < geometry_.tensor; ++t) {
      AddTo(room_.sum.data(), Own(t), count);
      AddTo(room_.magnitude.data(), OwnMagnitude(t), count);
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
    if (complete_own_[t]) check(Fit::kOwn, Own(t), OwnMagnitude(t));
    if (wants_sum_) {
      check(Fit::kSum, room_.sum.data(), room_.magnitude.data());
      check(Fit::kAvg, room_.sum.data(), room_.magnitude.data());
    }
    if (one_term() || !source.contribution.present()) return;
    const bool raw = misfits_[static_cast<int>(Fit::kRaw)] == 0;
    const bool scaled = misfits_[static_cast<int>(Fit::kScaled)] == 0;
    if (!raw && !scaled) return;
    TakeMagnitudes(C(h), count, room_.term_magnitude.data());
    if (raw) check(Fit::kRaw, C(h), room_.term_magnitude.data());
    if (scaled) check(Fit::kScaled, C(h), room_.term_magnitude.data());
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
      const bool term = source.contribution.present() && !one_term();
      measure_.checked[static_cast<int>(Fit::kSum)] += wants_sum_ ? 1 : 0;
      measure_.checked[static_cast<int>(Fit::kAvg)] += wants_sum_ ? 1 : 0;
      measure_.checked[static_cast<int>(Fit::kRaw)] += term ? 1 : 0;
      measure_.checked[static_cast<int>(Fit::kScaled)] += term ? 1 : 0;
    }
    for (int fit = 0; fit < kNumFits; ++fit)
      measure_.fits[fit] = measure_.checked[fit] > 0 && misfits_[fit] == 0;
    measure_.mismatched = misfits_[0];
    if (wants_sum_) measure_.mismatched = std::min({misfits_[0], misfits_[1], misfits_[2]});
    lines_.Conclude(limits.equal * limits.equal, limits.unequal * limits.unequal, measure_);
  }

  const Step& step_;
  const ParamGeometry& geometry_;
  const MeasureOptions& options_;
  Measure measure_;
  std::vector<Source> sources_;
  bool any_owned_ = false;
  std::vector<bool> complete_own_;  // by place along the tensor axis: all its terms are there
  int64_t chunk_ = 1;
  int64_t ahead_ = 0;  // the element up to which no new reading ahead is due
  Room& room_;
  bool wants_sum_ = false;  // over the tensor axis: it is complete, and not known to be cut
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
  // Contributions that are the same are computed the same: few roundings apart, in any type.
  return {.equal = std::min(4 * roundoff, 0.02), .unequal = std::min(16 * roundoff, 0.1)};
}

}  // namespace sumonce::capture

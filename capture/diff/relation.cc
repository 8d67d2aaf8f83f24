#include "capture/diff/relation.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/diff/slices.h"

namespace sumonce::diff {
namespace {

constexpr size_t kMaxDims = 4;  // dimensions in which slices are looked for

// How much of B a multiple may leave unexplained: rounding of one entry, with room for the sums of
// whoever made it.
double Rounding(DType a, DType b) {
  const auto of = [](DType dtype) {
    switch (dtype) {
      case DType::kFloat64:
        return 1e-10;
      case DType::kBFloat16:
        return 2e-2;
      case DType::kFloat16:
        return 2e-3;
      default:
        return 2e-5;
    }
  };
  return std::max(of(a), of(b));
}

std::string FactorText(double value) { return absl::StrFormat("%.6g", value); }

absl::StatusOr<double> Misfit(const TensorRef& a, const TensorRef& b, double factor, double bb) {
  double left = 0;
  SUMONCE_RETURN_IF_ERROR(
      ForPieces(a, b, [&](int64_t, std::span<const double> of_a, std::span<const double> of_b) {
        for (size_t i = 0; i < of_a.size(); ++i) {
          const double rest = of_b[i] - factor * of_a[i];
          left += rest * rest;
        }
      }));
  return std::sqrt(left / bb);
}

// The whole number within the rounding of `value`, from 2 on; 0 if there is none.
double WholeNear(double value, double rounding) {
  const double whole = std::round(value);
  return whole >= 2 && std::fabs(value - whole) <= rounding * whole ? whole : 0;
}

Relation OfFactor(double factor, double misfit, double rounding) {
  Relation relation{.kind = RelationKind::kScaled, .factor = factor, .misfit = misfit};
  if (const double n = WholeNear(factor, rounding); n != 0) {
    relation.kind = RelationKind::kTimes;
    relation.factor = n;
    relation.text = absl::StrCat("B is ", FactorText(n), " times A");
  } else if (const double d = WholeNear(1 / factor, rounding); d != 0) {
    relation.kind = RelationKind::kDividedBy;
    relation.factor = d;
    relation.text = absl::StrCat("B is A divided by ", FactorText(d));
  } else if (std::fabs(factor + 1) <= rounding) {
    relation.factor = -1;
    relation.text = "B is A with the other sign";
  } else {
    relation.text = absl::StrCat("B is ", FactorText(factor), " times A");
  }
  return relation;
}

absl::StatusOr<Relation> Linear(const TensorRef& a, const TensorRef& b, const Figures& figures) {
  if (figures.not_finite_a > 0 || figures.not_finite_b > 0) return Relation{};
  if (figures.bb == 0) return Relation{.kind = RelationKind::kZero, .text = "B is zero, A is not"};
  if (figures.aa == 0)
    return Relation{.kind = RelationKind::kFromZero, .text = "A is zero, B is not"};
  const double rounding = Rounding(a.info.dtype, b.info.dtype);
  const double factor = figures.ab / figures.aa;
  if (factor != 0 && std::fabs(factor - 1) > rounding) {
    SUMONCE_ASSIGN_OR_RETURN(const double misfit, Misfit(a, b, factor, figures.bb));
    if (misfit <= rounding) return OfFactor(factor, misfit, rounding);
  }
  const double spread = figures.offset_max - figures.offset_min;
  const double offset = (figures.offset_max + figures.offset_min) / 2;
  const double entry = std::sqrt(figures.bb / static_cast<double>(figures.count));
  if (figures.count > 1 && spread <= rounding * (entry + std::fabs(offset)) &&
      std::fabs(offset) > 10 * spread && std::fabs(offset) > rounding * entry) {
    return Relation{.kind = RelationKind::kOffset,
                    .factor = offset,
                    .text = absl::StrCat("B is A plus ", FactorText(offset))};
  }
  return Relation{};
}

Relation OfRuns(const std::vector<Run>& runs, int64_t extent, size_t dim) {
  Relation relation;
  const std::string along = absl::StrCat(" along dimension ", dim);
  if (runs.size() == 2) {
    relation.kind = RelationKind::kShifted;
    relation.text = absl::StrCat("B is A shifted", along, ", the end at the beginning");
    relation.detail = absl::StrCat("by ", runs[0].count, " of ", extent);
    return relation;
  }
  if (const auto packing = RepackingOf(runs)) {
    relation.kind = RelationKind::kRepacked;
    relation.text = absl::StrCat("B is A in another packing", along, ": ",
                                 packing->units_in_a ? "A" : "B", " has unit behind unit, ",
                                 packing->units_in_a ? "B" : "A", " part behind part");
    relation.detail = absl::StrCat(packing->units, " units of ", packing->parts, " parts with ",
                                   absl::StrJoin(packing->rows, ", "));
    return relation;
  }
  int64_t smallest = extent;
  for (const Run& run : runs) smallest = std::min(smallest, run.count);
  relation.kind = RelationKind::kPermuted;
  relation.text = absl::StrCat("B is A with blocks permuted", along);
  relation.detail = absl::StrCat(runs.size(), " blocks, the smallest of ", smallest);
  return relation;
}

bool Sliceable(const TensorRef& tensor, size_t dim) {
  return tensor.info.shape[dim] > 1 && tensor.info.shape[dim] <= kMaxSlices &&
         tensor.info.count() > 0;
}

absl::StatusOr<Relation> Rearranged(const TensorRef& a, const TensorRef& b) {
  Relation shifted;
  for (size_t dim = 0; dim < std::min(a.info.shape.size(), kMaxDims); ++dim) {
    if (!Sliceable(a, dim)) continue;
    SUMONCE_ASSIGN_OR_RETURN(const auto of_a, Fingerprints(a, dim));
    SUMONCE_ASSIGN_OR_RETURN(const auto of_b, Fingerprints(b, dim));
    const auto runs = PermutationOf(of_a, of_b);
    if (runs && runs->size() > 1) return OfRuns(*runs, a.info.shape[dim], dim);
    if (const auto shift = ShiftOf(of_a, of_b); shift && shifted.kind == RelationKind::kNone) {
      shifted.kind = RelationKind::kShifted;
      shifted.text = absl::StrCat("B is A shifted along dimension ", dim);
      shifted.detail = absl::StrCat("by ", shift->offset, "; ", shift->matched, " of ",
                                    a.info.shape[dim], " slices are found again");
    }
  }
  return shifted;
}

// Rows of A as columns of B.
absl::StatusOr<bool> IsTransposed(const TensorRef& a, const TensorRef& b) {
  const auto &x = a.info.shape, &y = b.info.shape;
  if (x.size() != 2 || y.size() != 2 || x[0] != y[1] || x[1] != y[0]) return false;
  if (a.info.count() == 0 || x[0] > kMaxSlices) return false;
  SUMONCE_ASSIGN_OR_RETURN(const auto rows, Fingerprints(a, 0));
  SUMONCE_ASSIGN_OR_RETURN(const auto columns, Fingerprints(b, 1));
  return rows == columns;
}

// Where the slices of the smaller lie one behind the other in the larger; -1: nowhere. Knuth,
// Morris and Pratt's search: equal slices must not make it slow.
int64_t PlaceIn(const std::vector<uint64_t>& larger, const std::vector<uint64_t>& smaller) {
  std::vector<size_t> border(smaller.size(), 0);
  for (size_t i = 1, k = 0; i < smaller.size(); ++i) {
    while (k > 0 && smaller[i] != smaller[k]) k = border[k - 1];
    if (smaller[i] == smaller[k]) ++k;
    border[i] = k;
  }
  for (size_t i = 0, k = 0; i < larger.size(); ++i) {
    while (k > 0 && larger[i] != smaller[k]) k = border[k - 1];
    if (larger[i] == smaller[k]) ++k;
    if (k == smaller.size()) return static_cast<int64_t>(i + 1 - k);
  }
  return -1;
}

}  // namespace

absl::StatusOr<Relation> RelationOf(const TensorRef& a, const TensorRef& b,
                                    const Figures& figures) {
  if (figures.identical)
    return Relation{.kind = RelationKind::kEqual,
                    .text = "A and B hold the same values, NaN included"};
  SUMONCE_ASSIGN_OR_RETURN(Relation relation, Linear(a, b, figures));
  if (relation.kind != RelationKind::kNone) return relation;
  SUMONCE_ASSIGN_OR_RETURN(const bool transposed, IsTransposed(a, b));
  if (transposed) return Relation{.kind = RelationKind::kTransposed, .text = "B is A transposed"};
  return Rearranged(a, b);
}

absl::StatusOr<Relation> RelationOfShapes(const TensorRef& a, const TensorRef& b) {
  SUMONCE_ASSIGN_OR_RETURN(const bool transposed, IsTransposed(a, b));
  if (transposed) return Relation{.kind = RelationKind::kTransposed, .text = "B is A transposed"};
  const auto &x = a.info.shape, &y = b.info.shape;
  if (x.size() != y.size() || a.info.count() == 0 || b.info.count() == 0) return Relation{};
  size_t differing = 0, dim = 0;
  for (size_t d = 0; d < x.size(); ++d) {
    if (x[d] == y[d]) continue;
    ++differing;
    dim = d;
  }
  if (differing != 1 || std::max(x[dim], y[dim]) > kMaxSlices) return Relation{};
  SUMONCE_ASSIGN_OR_RETURN(const auto of_a, Fingerprints(a, dim));
  SUMONCE_ASSIGN_OR_RETURN(const auto of_b, Fingerprints(b, dim));
  const bool b_smaller = y[dim] < x[dim];
  const int64_t at = b_smaller ? PlaceIn(of_a, of_b) : PlaceIn(of_b, of_a);
  if (at < 0) return Relation{};
  return Relation{.kind = RelationKind::kSlice,
                  .text = absl::StrCat(b_smaller ? "B is a slice of A" : "A is a slice of B",
                                       " along dimension ", dim),
                  .detail = absl::StrCat(at, " to ", at + std::min(x[dim], y[dim]), " of ",
                                         std::max(x[dim], y[dim]))};
}

}  // namespace sumonce::diff

// What the numbers of one parameter say, in one pass over its elements on all its holders: sums and
// comparisons only, no judgement. Memory is bounded whatever the parameter's size: elements come in
// chunks.
//
// Notation (docs/capture-format.md "What is judged"): holder (e, t, d) contributed c and ended with
// f; kappa is the factor that a right reduction gives each contribution.
//   own   N[e,t,d] = kappa * sum over e, d of c[.,t,.]   summed over data and copies
//   sum   N        = kappa * sum over e, t, d            and over the tensor axis
//   avg   sum / tensor
//   raw   c[e,t,d], nothing done; scaled: kappa * c[e,t,d]
// A fit is: every element of every holder within the bound of the roundings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/audit/geometry.h"
#include "capture/reader/step.h"

namespace sumonce::capture {

enum class Fit : uint8_t { kOwn, kSum, kAvg, kRaw, kScaled };
inline constexpr int kNumFits = 5;

// How two or more ranks' arrays compare.
enum class Likeness : uint8_t {
  kUnknown,  // there is nothing to compare
  kZero,     // all are exactly zero
  kEqual,
  kNear,  // neither clearly equal nor clearly different
  kUnequal,
};

struct HolderFigures {
  double contribution_square = 0;  // sum of squares
  double finalized_square = 0;     // of the elements that this rank owns
  double finalized_max = 0;
  int64_t owned = 0;  // elements of f that count
};

// Rows (of dimension 0) and columns (of dimension 1) of a matrix whose contributions along the
// tensor axis are equal, and those that clearly differ; zero ones are neither.
struct LineCounts {
  int64_t equal = 0;
  int64_t unequal = 0;
};

// Weights of all present holders, compared to the last bit.
struct WeightFigures {
  bool known = false;         // every present holder has it
  bool copies_equal = false;  // along data and copies
  bool equal = false;         // over the whole grid
  bool constant = false;      // all elements are one number
};

struct Measure {
  int64_t elements = 0;
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;  // of f on the first holder
  double roundoff = 0;            // of the coarsest of c and f
  std::vector<HolderFigures> holders;
  std::string not_finite;  // "finalized on rank 1, element [2, 5]"; empty: all is finite
  bool contributions_missing = false;  // a present holder has f but no c
  bool shapes_differ = false;          // then nothing else is measured
  std::string shapes_text;
  Likeness over_tensor = Likeness::kUnknown;  // contributions, along the tensor axis
  std::vector<Likeness> over_data;            // along each data axis, as ParamGeometry::data_axes
  Likeness finalized_copies = Likeness::kUnknown;  // finalized, along the data axes and copies
  Likeness finalized_tensor = Likeness::kUnknown;  // along the tensor axis
  bool contributions_zero = true;
  bool finalized_zero = true;
  std::array<bool, kNumFits> fits = {};
  // Holders that a fit could be asked of: all its terms are there.
  std::array<int, kNumFits> checked = {};
  int64_t mismatched = 0;                // elements that the best of own, sum and avg does not fit
  WeightFigures weights, weights_after;  // before the step, and after it
  LineCounts rows, columns;
};

struct MeasureOptions {
  double kappa = 1;
  // The kinds of tensors that are c and f: the step's, or those of a probe of the finalizer.
  std::string contribution = "contribution";
  std::string finalized = "finalized";
  // Allowed relative rounding of one element, of the sum of its terms' magnitudes; absent: derived
  // from the dtypes and the number of terms.
  std::optional<double> rtol;
};

// The error of reading a file.
absl::StatusOr<Measure> MeasureParam(const Step& step, const ParamGeometry& geometry,
                                     const MeasureOptions& options);

// The bound that a fit allows, relative to the sum of the terms' magnitudes: (terms + 4) unit
// roundoffs.
double RoundingBound(double roundoff, int terms);

// What counts as equal and as clearly different, relative, in the norm.
struct LikenessLimits {
  double equal = 0;
  double unequal = 0;
};
LikenessLimits LimitsFor(double roundoff);

}  // namespace sumonce::capture

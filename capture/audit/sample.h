// Elements of a parameter on all its holders, in memory at once: whole, or blocks spread over it.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/audit/measure.h"

namespace sumonce::capture {

struct Sample {
  int64_t count = 0;                              // elements
  bool whole = true;                              // all elements of the parameter
  std::vector<int> tensor, data, copy;            // coordinates, by holder
  std::vector<std::vector<double>> contribution;  // kappa times it
  std::vector<std::vector<double>> finalized;     // of owned parts: the owner's value on all
  // Sums as in measure.h, with the magnitudes of their terms: by place along the tensor axis, and
  // over it.
  std::vector<std::vector<double>> own, own_magnitude;
  std::vector<double> sum, sum_magnitude;
  double relative = 0;   // allowed, of a magnitude
  double magnitude = 0;  // the greatest of sum_magnitude
  double bound() const { return relative * magnitude; }
  std::span<const double> Own(int holder) const { return own[tensor[holder]]; }
};

// At most so many doubles are kept for each of contribution and finalized.
inline constexpr int64_t kSampleDoubles = int64_t{4} << 20;

// The grid is complete and has contributions.
absl::StatusOr<Sample> TakeSample(const Step& step, const ParamGeometry& geometry,
                                  const Measure& measure, const MeasureOptions& options);

// The same elements of another kind of tensor, by holder; an empty list where a holder lacks it.
absl::StatusOr<std::vector<std::vector<double>>> SampleKind(const Step& step,
                                                            const ParamGeometry& geometry,
                                                            const Measure& measure,
                                                            const std::string& kind);

}  // namespace sumonce::capture

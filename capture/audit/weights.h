// Whether the copies of a weight are copies: compared byte by byte, each with the first one at its
// place along the tensor axis, and those with one another.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "capture/audit/geometry.h"
#include "capture/audit/measure.h"
#include "capture/reader/step.h"

namespace sumonce::capture {

// `kind`: "weight" or "weight_after". Nothing is known where a present holder lacks it or has
// another dtype or count than `elements`. The error of reading a file.
absl::Status CompareWeights(const Step& step, const ParamGeometry& geometry,
                            const std::string& kind, int64_t elements, WeightFigures& figures);

}  // namespace sumonce::capture

// kappa: the factor that a right reduction gives each rank's contribution.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/audit/geometry.h"
#include "capture/reader/step.h"

namespace sumonce::capture {

struct Kappa {
  double value = 1;
  std::string condition;  // where it comes from, if not from the files; empty: from them
};

// From the wrapper's factor and, with the per-token loss, the global number of tokens; without the
// wrapper's factor, what most parameters agree on.
absl::StatusOr<Kappa> FindKappa(const Step& step, const std::vector<ParamGeometry>& geometries);

}  // namespace sumonce::capture

// Whether a run of several steps ends where the unsharded run ends: the control of the first
// founding case, "equal to the TP1 trajectory".
#pragma once

#include <string>
#include <vector>

#include "sim/simulator.h"
#include "verify/tolerance.h"

namespace sumonce {

struct TrajectoryResult {
  bool equal = false;
  // Roundings alone part the trajectories by a tenth of a weight's way or more: then nothing is
  // compared, and nothing below is set.
  bool chaotic = false;
  std::string worst_param;
  double diff_abs_max = 0;
  double allowed = 0;  // at the worst element
};

// The weights after the last step against an unsharded run of all steps from the same start. Adam
// divides a gradient by its own size, so a rounding of e in a gradient g moves a step by up to lr *
// min(2, 2e / (|g| + eps)): the bound adds that up, and adds by how far the unsharded run itself
// goes apart when its start weights are moved by the tolerance's gamma: what roundings grow to,
// here along one direction of many, so sixteen times that.
TrajectoryResult CompareTrajectory(const Scenario& scenario, const RunRecord& record,
                                   const Weights& start, const Tolerance& tolerance);

}  // namespace sumonce

// Whether the files of a step fit together: what one rank's file has and its peers' have not, and
// what they say differently of one thing. A parameter is judged by what the files have in common,
// so this must be said.
#pragma once

#include <string>
#include <vector>

#include "capture/audit/geometry.h"
#include "capture/reader/step.h"

namespace sumonce::capture {

// Sentences for Audit::faults, each with its file and cure: gradients and contributions that a rank
// lacks although by the mesh it holds the parameter, token counts that differ, `owned` in some
// files only.
std::vector<std::string> DisagreementsOf(const Step& step,
                                         const std::vector<ParamGeometry>& geometries);

// Distributed optimizer: elements of the parameter that no rank of a data-parallel group owns, so
// that nobody reduces or updates them; "" if there are none, or files are missing.
std::string UnownedText(const Step& step, const ParamGeometry& geometry, int64_t elements);

}  // namespace sumonce::capture

// The metadata of a simulated rank's file.
#pragma once

#include <map>
#include <string>

#include "comm/mesh.h"
#include "sim/record.h"
#include "sim/scenario.h"

namespace sumonce::capture {

// As the strings of __metadata__ (docs/capture-format.md): identity, mesh, groups, parameters with
// the marks that the finalizer read, layout, tokens, the wrapper's factor, configuration, and the
// norm where gradients are clipped by it.
std::map<std::string, std::string> RunMetadata(const Scenario& scenario, const Mesh& mesh, int rank,
                                               const StepRecord& record, const std::string& name);

}  // namespace sumonce::capture

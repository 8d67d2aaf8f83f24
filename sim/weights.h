// Where weights come from: the random source, keyed by (seed, parameter name, global element
// index), or a safetensors file.
#pragma once

#include "absl/status/statusor.h"
#include "sim/scenario.h"
#include "spmd/param.h"

namespace sumonce {

// Whole weights by parameter name.
using Weights = std::map<std::string, Tensor>;

// The unsharded start weights of every parameter of the scenario's model.
absl::StatusOr<Weights> StartWeights(const Scenario& scenario, const ParamStore& params);

// Gives each parameter its rank's slice, and a zero main_grad where it is trained.
void LoadWeights(const Weights& weights, const Mesh& mesh, int rank, ParamStore& params);

}  // namespace sumonce

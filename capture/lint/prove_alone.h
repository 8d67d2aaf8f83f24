// One layer proved by itself, where the model has no place for it.
#pragma once

#include "comm/mesh.h"
#include "spmd/state.h"

namespace sumonce::lint {

// The gradient's state of a whole weight that a linear applies to the tokens as they lie (a router,
// a gate of shared experts): own tokens with sequence parallelism, all of them without. Before the
// finalizer; `loss_scale`: of the loss mode (sim/data.h).
State ProveOnOwnTokens(const Mesh& mesh, bool sequence_parallel, const Scale& loss_scale);

}  // namespace sumonce::lint

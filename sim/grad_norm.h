// The global gradient norm, clipping and zero count as Megatron-Core does them
// (core/optimizer/clip_grads.py: get_grad_norm_fp32, clip_grad_by_total_norm_fp32,
// count_zeros_fp32; optimizer.py: get_main_grads_for_grad_norm). Which copies count is a matter of
// marks, not of layouts: a replicated parameter that is marked tensor_model_parallel counts once a
// rank, a sharded one without the mark on tp rank 0 alone.
//
// Parameters marked allreduce=false belong to the experts' optimizer, whose sum runs over etp, ep
// and pp; a rank's norm is the root of both sums. Where etp is tp these are the dense ranks, and
// the one sum has all; where etp is 1 each rank has its own norm.
#pragma once

#include <deque>

#include "absl/status/statusor.h"
#include "sim/finalize/finalizer.h"
#include "sim/record.h"
#include "sim/scenario.h"
#include "spmd/numeric_tape.h"

namespace sumonce {

constexpr double kClipEps = 1e-6;  // added to the norm in the clip factor

// Whether a rank's gradient of a parameter with these marks enters the norm. `rank`: in the group
// whose first member counts for all (DuplicateRank).
bool CountsInNorm(const Marks& marks, int rank);

// Of a world rank: its rank in tp, or in etp where the version looks at that.
int DuplicateRank(const Marks& marks, const FinalizePreset& preset, const Mesh& mesh, int rank);

// Whether the parameter enters a sum over the experts' ranks that are not those of tp.
bool IsSummedApart(const Marks& marks, const Mesh& mesh);

// max_norm / (norm + kClipEps) where that is less than 1, else 1.
double ClipFactor(double norm, double max_norm);

// Of all trained parameters' main_grad over this rank's tp group: sums of squares (or the greatest
// |entry|) and zeros by one collective each, in rank order; what is summed apart is this rank's
// own (etp is 1). Null communicators on a mesh of size 1. The status is a communicator's.
absl::StatusOr<GradNorm> ComputeGradNorm(const OptimizerConfig& optimizer,
                                         const FinalizePreset& preset, const Mesh& mesh, int rank,
                                         const GroupComms& comms, const std::deque<Param>& params);

// Multiplies every trained parameter's main_grad; the copies that do not count too.
void ScaleGradients(double factor, std::deque<Param>& params);

}  // namespace sumonce

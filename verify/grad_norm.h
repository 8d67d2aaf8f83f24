// The gradient norm that a run computed, against the one in which every parameter counts once, and
// what clipping makes of the difference (docs/THEORY.md "Norm and clipping"): NORM_MISCOUNT, in
// numbers from the record and in the proof from the marks.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/module.h"
#include "sim/record.h"
#include "verify/tolerance.h"
#include "verify/verdict.h"

namespace sumonce {

// A trained parameter whose entries do not count once.
struct Miscounted {
  std::string param;
  bool replicated = false;  // counted once a rank: tp times; else a shard of which rank 0's counts
};

// By marks and layouts alone: for every tp beyond 1. Copies that count more than once leave the
// greatest |entry| as it is.
std::vector<Miscounted> MiscountedByMarks(const ParamStore& params, NormType norm_type);

struct NormCheck {
  double counted = 0;      // what the ranks computed
  double once = 0;         // of the finalized gradients, each parameter once (rank 0's copy)
  double reference = 0;    // of the unsharded run
  double clip_factor = 1;  // of the ranks
  double reference_clip_factor = 1;
  std::vector<Miscounted> miscounted;  // whose numbers do not count once
  std::vector<std::string> unseen;     // whose gradient is zero: the numbers show nothing
};

// One recorded step, `ranks` by world rank; the norm of the first tensor-parallel group.
NormCheck CheckGradNorm(const Mesh& mesh, const OptimizerConfig& optimizer,
                        const ParamStore& params, std::span<const StepRecord* const> ranks,
                        const StepRecord& reference, const Tolerance& tolerance);

// The verdict, of the run itself; none if every parameter counts once.
std::optional<Verdict> NormVerdict(const NormCheck& check, std::span<const Miscounted> miscounted);

// Where the numbers of a parameter contradict the proof's list: sentences, our own fault.
std::vector<std::string> NormDisagreements(const NormCheck& check,
                                           std::span<const Miscounted> proved);

// Norm, clip factor and the optimizer's step beside those of the unsharded run; `right`: the
// parameters whose gradients are right, which clipping alone can move.
RankTable NormTable(const NormCheck& check, const Mesh& mesh, const OptimizerConfig& optimizer,
                    const ParamStore& params, std::span<const StepRecord* const> ranks,
                    const StepRecord& reference, std::span<const std::string> right);

}  // namespace sumonce

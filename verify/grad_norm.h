// The gradient norm that a run computed, against the one in which every parameter counts once, and
// what clipping makes of the difference (docs/THEORY.md "Norm and clipping"): NORM_MISCOUNT, in
// numbers from the record and in the proof from the marks.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/module.h"
#include "sim/finalize/finalizer.h"
#include "sim/record.h"
#include "verify/tolerance.h"
#include "verify/verdict.h"

namespace sumonce {

// How the entries of a parameter may count other than once.
enum class Miscount : uint8_t {
  kEveryCopy,   // replicated and marked tensor_model_parallel: tp times
  kOneShard,    // cut and not marked: tp rank 0's shard alone
  kOnRankZero,  // summed apart (sim/grad_norm.h), replicated, not marked: tp rank 0 alone has it
  kOwnShard,    // summed apart and cut: each rank has its own shard alone
};

struct Miscounted {
  std::string param;
  Miscount how = Miscount::kEveryCopy;
};

// By marks and layouts alone: for every tp beyond 1. Copies that count more than once leave the
// greatest |entry| as it is.
std::vector<Miscounted> MiscountedByMarks(const ParamStore& params, const FinalizePreset& preset,
                                          const Mesh& mesh, NormType norm_type);

struct NormCheck {
  double counted = 0;           // what rank 0 computed
  std::vector<double> by_rank;  // what each rank of its tp group did, where they differ
  double once = 0;              // of the finalized gradients, each parameter once (rank 0's copy)
  double reference = 0;         // of the unsharded run
  double clip_factor = 1;       // of the ranks
  double reference_clip_factor = 1;
  std::vector<std::string> miscounted;  // whose numbers do not count once
  std::vector<std::string> unseen;      // whose gradient is zero: the numbers show nothing
};

// One recorded step, `ranks` by world rank; the norm of the first tensor-parallel group.
NormCheck CheckGradNorm(const Mesh& mesh, const FinalizePreset& preset,
                        const OptimizerConfig& optimizer, const ParamStore& params,
                        std::span<const StepRecord* const> ranks, const StepRecord& reference,
                        const Tolerance& tolerance);

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

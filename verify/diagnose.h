// From records to verdicts, by numbers and the reference alone: the proof is not asked, so that the
// two can disagree.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/simulator.h"
#include "verify/prove.h"
#include "verify/tolerance.h"
#include "verify/verdict.h"

namespace sumonce {

// One compared step: the ranks' records and the reference's.
struct ComparedStep {
  int step = 1;
  std::vector<const StepRecord*> ranks;
  const StepRecord* reference = nullptr;
  std::vector<const StepRecord*>
      previous;  // the step before, if it was recorded: for stale buffers
};

struct DiagnoseInputs {
  const Mesh* mesh = nullptr;
  Scale sound_scale;  // of sound contributions (mean of cells: dp)
  Tolerance tolerance;
  DType main_grad_dtype = DType::kFloat64;
};

// The verdict of one parameter in one step. UPSTREAM verdicts have no operation yet: Localize names
// it.
Verdict DiagnoseParam(const DiagnoseInputs& inputs, const ComparedStep& step, const Param& param);

// "rank 2: 0.38 of the reference's norm", one line a rank.
std::vector<std::string> PerRankLines(const std::vector<Tensor>& ranks, const Tensor& reference,
                                      const ShardMap& shards, const Mesh& mesh);

}  // namespace sumonce

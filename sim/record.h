// What one rank leaves behind of one step: the numbers that verdicts are made of. A simulation, a
// run over a transport and a dump of a real job give the same record.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spmd/map.h"
#include "spmd/param.h"

namespace sumonce {

struct ParamRecord {
  std::vector<Tensor> terms;           // per microbatch, straight from backward
  std::map<std::string, Tensor> uses;  // per use (operation name), summed over microbatches
  Tensor contribution;                 // main_grad before the finalizer
  std::vector<Tensor> after;           // after each step of the finalizer
  std::vector<std::string> rules;      // the rule that claimed it in each step, "" for none
  // The communication log: what each step did to its buffer, over which group, "" for none.
  struct Reduction {
    std::string group;
    Map map = Map::kIdentity;
    std::string divided_by;  // before, by the size of this group; "": not
    std::string operation;   // the call's label, "finalizer data_parallel/data_parallel_sum"
    int step = 0;            // whose result it gave: index into `after`
  };
  std::vector<Reduction> log;
  Tensor weight_before;
  Tensor weight_after;
  Marks marks;  // as the finalizer read them
  const Tensor& finalized() const { return after.empty() ? contribution : after.back(); }
};

// What an optimizer sees before it steps, the same on every rank of a model-parallel group.
struct GradNorm {
  double norm = 0;         // as the marks count copies
  double clip_factor = 1;  // that all gradients were multiplied by
  int64_t zeros = 0;       // entries that are exactly 0, counted likewise
};

struct StepRecord {
  int step = 1;
  double loss = 0;  // this rank's share, before 1/N
  double num_tokens = 0;
  std::optional<GradNorm> grad_norm;  // where gradients are clipped
  std::map<std::string, ParamRecord> params;
};

// rank -> its recorded steps, ascending.
using RankRecords = std::vector<StepRecord>;
struct RunRecord {
  std::vector<RankRecords> ranks;
};

}  // namespace sumonce

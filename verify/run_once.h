// One run of a scenario with given edits: simulated, compared with the reference, diagnosed and
// proved. No cures, no expectations: what is the case.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "sim/simulator.h"
#include "verify/prove.h"
#include "verify/tolerance.h"
#include "verify/verdict.h"

namespace sumonce {

struct RunOnce {
  absl::Status run_status;  // mismatch, deadlock, refused shapes: then there are no numbers
  std::optional<Verdict> run_verdict;  // what that means
  std::map<std::string, Verdict>
      verdicts;  // per trained parameter: the first step in which it is not right
  std::optional<Verdict> norm_verdict;   // of the gradient norm, where it counts copies wrongly
  std::optional<RankTable> norm_table;   // where gradients are clipped
  std::optional<Verdict> rerun_verdict;  // of runs that differ (verify/reruns.h), if compared
  std::map<std::string, Verdict>
      numbers;  // as the numbers alone say it, before the proof decides what they cannot see
  ProofRun proof;
  std::vector<std::string> disagreements;  // numbers against proof: our own fault
  std::string digest;
  std::string gradient_digest;  // of the recorded steps' gradients and their norms: two runs that
                                // differ must differ here
  RunRecord record;
  std::vector<RankCalls> calls;  // SimOptions::now_us: of the run itself, not of its repetitions
  Weights start;                 // the unsharded weights that it started from
  Tolerance tolerance;           // of its sums; amplification is measured per parameter
  int undecided = 0;             // parameters whose numbers are zero everywhere: the proof decided
};

RunOnce RunScenarioOnce(const Scenario& scenario, std::span<const Edit> edits,
                        const SimOptions& options);

}  // namespace sumonce

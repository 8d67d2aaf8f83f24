// A scenario becomes a run: ranks build the model, run forward and backward over their
// microbatches, finalize their gradients, step the optimizer, and leave a record. The unsharded
// reference is the same code on a mesh of size 1 without edits.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "comm/recording.h"
#include "comm/transport.h"
#include "sim/finalize/finalizer.h"
#include "sim/record.h"
#include "sim/scenario.h"
#include "sim/weights.h"
#include "spmd/numeric_tape.h"

namespace sumonce {

struct RemoteScenarios;  // sim/remote/remote.h

struct SimOptions {
  std::string transport = "in_process";
  ExecutorOptions executor;
  bool native_sums = false;  // as RunOptions
  // Of a transport whose ranks are processes: those, and what they can simulate.
  const RemoteScenarios* remote = nullptr;
  // Keeps every operation of one microbatch, for localisation: which step from 1 (of the run, or of
  // the reference's own steps), which microbatch from 0.
  bool keep_tapes = false;
  int keep_step = 1;
  int keep_microbatch = 0;
  // If set, the ranks' calls are recorded, with times by this clock: microseconds, never
  // decreasing, called by all ranks. No other result depends on it.
  std::function<double()> now_us;
  std::optional<double> calls_begin_us;  // the zero of these times; absent: when the ranks begin
};

// One rank's tape with what it points into.
struct KeptTape {
  std::shared_ptr<const Mesh> mesh;
  std::shared_ptr<Model> model;
  std::shared_ptr<NumericTape> tape;
};

struct SimResult {
  absl::Status status;           // the failure that ended the run, if one did
  RunRecord record;              // of the ranks, as far as they came
  std::vector<KeptTape> tapes;   // keep_tapes: per rank
  std::vector<RankCalls> calls;  // now_us: per rank
  std::string digest;  // over every rank's recorded gradients, weights and losses, in rank order
};

// Runs all steps with these edits on the scenario's mesh.
SimResult Simulate(const Scenario& scenario, std::span<const Edit> edits, const Weights& start,
                   const SimOptions& options);

// The part of it that this process has: the records of the ranks that live here, and no digest.
// Collective over the transport's processes; the status is the run's on all.
SimResult SimulateHere(const Scenario& scenario, std::span<const Edit> edits, const Weights& start,
                       const SimOptions& options);

// The unsharded reference, in float64: `steps` steps from `start`, the data beginning at step
// `first_step`.
SimResult SimulateReference(const Scenario& scenario, const Weights& start, int first_step,
                            int steps, const SimOptions& options);

// The whole weights at the start of a step, and whether the ranks' replicas agree to the last bit.
struct Assembled {
  Weights weights;
  std::vector<std::string> drifted;  // parameters whose replicas differ
};
Assembled AssembleWeights(const Scenario& scenario, const RunRecord& record, size_t recorded_step);

// The configuration of the model: sequence parallelism is ineffective at tp 1. The reference of a
// run has the run's, so that its operations have the same names; on its mesh of size 1 no
// communication has a peer.
ModelConfig EffectiveModel(const Scenario& scenario);
FinalizeConfig EffectiveFinalizeConfig(const Scenario& scenario);
// The steps that are recorded and compared: 1, 1 + record_every, ..., and the last.
std::vector<int> RecordedSteps(const Scenario& scenario);

}  // namespace sumonce

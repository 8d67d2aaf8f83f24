#include "verify/memory_estimate.h"

#include <algorithm>
#include <map>

#include "comm/mesh.h"
#include "layers/decoder/decoder.h"
#include "sim/finalize/finalizer.h"
#include "sim/simulator.h"
#include "verify/prove.h"

namespace sumonce {
namespace {

constexpr double kBytes = sizeof(double);

// How many equal parts the value is cut into.
double PartsOf(const State& state, const Mesh& mesh) {
  double parts = 1;
  for (size_t axis = 0; axis < mesh.atomic().size(); ++axis) {
    if (state[static_cast<int>(axis)].layout == Layout::kShard) parts *= mesh.atomic()[axis].size;
  }
  return parts;
}

// Of one rank, and of one that holds all.
struct PerRank {
  double sharded = 0;
  double whole = 0;
};

PerRank ParametersOf(const Scenario& scenario, const ProofRun& proof) {
  std::map<const Param*, int> uses;
  for (const Tape::Node& node : proof.tape->nodes()) {
    if (node.kind == Tape::Kind::kUse) ++uses[node.param];
  }
  const auto preset = Finalizers().Find(scenario.finalizer);
  const double finalized = preset.ok() ? static_cast<double>((*preset).steps.size()) : 1;
  const double recorded = static_cast<double>(RecordedSteps(scenario).size());
  PerRank elements;
  for (const Param& param : proof.model->params().all()) {
    double copies = 1;
    if (param.requires_grad) {
      copies = 4 + recorded * (2 + scenario.data.microbatches + uses[&param] + finalized);
    }
    const double whole = static_cast<double>(Count(param.shards.whole()));
    elements.whole += copies * whole;
    elements.sharded += copies * whole / PartsOf(param.shards.Target(*proof.mesh), *proof.mesh);
  }
  return elements;
}

PerRank ActivationsOf(const ProofRun& proof) {
  PerRank elements;
  for (size_t id = 0; id < proof.tape->nodes().size(); ++id) {
    const Tape::Node& node = proof.tape->nodes()[id];
    if (node.kind == Tape::Kind::kUse && node.param) continue;
    const double copies = node.needs_grad ? 2 : 1;
    const double whole = static_cast<double>(Count(node.dims));
    elements.whole += copies * whole;
    elements.sharded +=
        copies * whole / PartsOf(proof.tape->value(static_cast<int>(id)), *proof.mesh);
  }
  return elements;
}

}  // namespace

MemoryEstimate EstimateMemory(const Scenario& scenario) {
  const ProofRun proof = Prove(scenario, {});
  if (!proof.model || !proof.tape) return {};
  const double ranks = scenario.mesh.world_size();
  const PerRank parameters = ParametersOf(scenario, proof);
  const PerRank activations = ActivationsOf(proof);
  double start = 0;
  for (const Param& param : proof.model->params().all())
    start += static_cast<double>(Count(param.shards.whole()));
  const double runs = scenario.defects.empty() && scenario.cures.empty() ? 1 : 2;
  const double tokens = static_cast<double>(scenario.data.sequence) *
                        static_cast<double>(scenario.data.micro_batch) * scenario.mesh.dp;
  const double width = scenario.model.head == Head::kProbe
                           ? static_cast<double>(scenario.model.vocab + scenario.model.hidden)
                           : 2 * static_cast<double>(scenario.model.vocab);
  MemoryEstimate estimate;
  estimate.parameters = kBytes * (runs * ranks * parameters.sharded + 2 * parameters.whole + start);
  estimate.activations = kBytes * std::max(ranks * activations.sharded, activations.whole);
  estimate.data = kBytes * scenario.steps * scenario.data.microbatches * tokens * width;
  return estimate;
}

}  // namespace sumonce

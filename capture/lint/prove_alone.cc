#include "capture/lint/prove_alone.h"

#include "layers/module.h"
#include "spmd/abstract_tape.h"
#include "spmd/collectives.h"
#include "spmd/ops/dot.h"
#include "spmd/ops/linear.h"

namespace sumonce::lint {

State ProveOnOwnTokens(const Mesh& mesh, bool sequence_parallel, const Scale& loss_scale) {
  const DimExtent s = Plain(Dim::kSequence, 2 * mesh.size(Axis::kTp));
  const DimExtent b = Plain(Dim::kBatch, mesh.size(Axis::kDp));
  const DimExtent h = Plain(Dim::kHidden, 4), o = Plain(Dim::kOut, 4);
  std::vector<ShardMap::Cut> cuts = {{Dim::kBatch, Axis::kDp}};
  if (sequence_parallel) cuts.push_back({Dim::kSequence, Axis::kTp});
  ParamStore params;
  const LayerConfig config{.sequence_parallel = sequence_parallel};
  Param& weight = Builder(config, params).Create("weight", ShardMap({o, h}, {}), Init(), Marks());
  AbstractTape tape(mesh);
  const Value x = tape.Constant({.name = "x", .shards = ShardMap({s, b, h}, cuts)});
  const Value probe = tape.Constant({.name = "probe", .shards = ShardMap({s, b, o}, cuts)});
  const Value y = Linear(tape, x, tape.Use(weight));
  Value loss = Dot(tape, y, probe, {.over = SetOf(Dim::kSequence, Dim::kBatch, Dim::kOut)});
  if (sequence_parallel) loss = ReduceFromRegion(tape, loss, Axis::kTp);
  tape.Backward(loss_scale.IsOne() ? loss : tape.Multiply(loss, loss_scale));
  for (size_t id = 0; id < tape.nodes().size(); ++id) {
    if (tape.nodes()[id].param == &weight) return tape.grad(static_cast<int>(id));
  }
  return State{.lost = {"no gradient reaches it", -1}};
}

}  // namespace sumonce::lint

#include "layers/mlp/shared_expert.h"

#include "layers/linear/regions.h"
#include "spmd/ops/linear.h"
#include "spmd/ops/sigmoid_gate.h"

namespace sumonce {
namespace {

MlpConfig Inner(const SharedExpertConfig& config) {
  MlpConfig mlp = config.mlp;
  mlp.layer_norm = false;
  return mlp;
}

}  // namespace

SharedExpert::SharedExpert(const Builder& builder, const SharedExpertConfig& config)
    : name_(builder.name()),
      overlap_(config.overlap),
      sequence_parallel_(builder.config().sequence_parallel),
      mlp_(builder, Inner(config), /*communicates=*/!config.overlap) {
  if (!config.gate) return;
  gate_weight_ = &builder.Create(
      "gate_weight", ShardMap({Plain(Dim::kHidden, config.mlp.hidden)}, {}),
      {.scale = builder.config().init_std}, SequenceParallelMarks(builder.config()));
}

Value SharedExpert::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  Value y = mlp_.Forward(tape, overlap_ ? EnterColumnParallel(tape, x, sequence_parallel_) : x);
  if (overlap_) y = LeaveRowParallel(tape, y, sequence_parallel_);
  if (!gate_weight_) return y;
  return SigmoidGate(tape, y, Linear(tape, x, tape.Use(*gate_weight_)));
}

void SharedExpert::CollectModules(std::vector<ToggleableModule>& modules) {
  mlp_.CollectModules(modules);
}

}  // namespace sumonce

#include "layers/linear/parallel_linear.h"

#include "layers/linear/regions.h"
#include "spmd/ops/add_bias.h"
#include "spmd/ops/linear.h"

namespace sumonce {
namespace {

Dims WeightDims(const LinearConfig& config) {
  Dims dims = config.out;
  dims.insert(dims.end(), config.in.begin(), config.in.end());
  return dims;
}

Init WeightInit(const Builder& builder) { return {.scale = builder.config().init_std}; }

std::vector<Param*> Present(std::initializer_list<Param*> params) {
  std::vector<Param*> present;
  for (Param* param : params) {
    if (param) present.push_back(param);
  }
  return present;
}

}  // namespace

std::vector<ShardMap::Cut> CutsOf(const LinearConfig& config) {
  if (!config.cuts.empty()) return config.cuts;
  return {{config.cut, Axis::kTp}};
}

ColumnParallelLinear::ColumnParallelLinear(const Builder& builder, const LinearConfig& config)
    : name_(builder.name()),
      path_(builder.path()),
      norm_(NormOptions(builder.config(), config.in.back().dim)),
      sequence_parallel_(builder.config().sequence_parallel),
      communicates_(config.communicates) {
  if (config.layer_norm) {
    layer_norm_weight_ =
        &builder.Create("layer_norm_weight", ShardMap(config.in, {}),
                        NormInit(builder.config().norm), SequenceParallelMarks(builder.config()));
  }
  weight_ = &builder.Create("weight", ShardMap(WeightDims(config), CutsOf(config)),
                            WeightInit(builder), ShardedMarks(0));
  if (config.bias) {
    bias_ = &builder.Create("bias", ShardMap(config.out, CutsOf(config)),
                            {.kind = Init::Kind::kZero}, ShardedMarks(0));
  }
  adapters_ = Adapters(builder, config, LoraAdapter::Target::kColumn,
                       SequenceParallelMarks(builder.config()));
}

Value ColumnParallelLinear::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  if (layer_norm_weight_) x = RmsNorm(tape, x, tape.Use(*layer_norm_weight_), norm_);
  Value y = communicates_ ? EnterColumnParallel(tape, x, sequence_parallel_) : x;
  y = Linear(tape, y, tape.Use(*weight_));
  if (bias_) y = AddBias(tape, y, tape.Use(*bias_));
  // The adapter reads the normalised activation as it lies here, not gathered
  // (return_layernorm_output).
  return adapters_.AddTo(tape, y, x);
}

void ColumnParallelLinear::CollectModules(std::vector<ToggleableModule>& modules) {
  modules.push_back({path_, &sequence_parallel_, Present({layer_norm_weight_, weight_, bias_})});
  adapters_.CollectModules(modules);
}

ReplicatedLinear::ReplicatedLinear(const Builder& builder, const LinearConfig& config,
                                   const Marks& marks)
    : name_(builder.name()),
      weight_(
          &builder.Create("weight", ShardMap(WeightDims(config), {}), WeightInit(builder), marks)),
      adapters_(builder, config, LoraAdapter::Target::kReplicated, marks) {}

Value ReplicatedLinear::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  const Value y = Linear(tape, x, tape.Use(*weight_));
  return adapters_.AddTo(tape, y, x);
}

void ReplicatedLinear::CollectModules(std::vector<ToggleableModule>& modules) {
  adapters_.CollectModules(modules);
}

RowParallelLinear::RowParallelLinear(const Builder& builder, const LinearConfig& config)
    : name_(builder.name()),
      path_(builder.path()),
      sequence_parallel_(builder.config().sequence_parallel),
      communicates_(config.communicates) {
  weight_ = &builder.Create("weight", ShardMap(WeightDims(config), CutsOf(config)),
                            WeightInit(builder), ShardedMarks(1));
  if (config.bias) {
    bias_ = &builder.Create("bias", ShardMap(config.out, {}), {.kind = Init::Kind::kZero},
                            SequenceParallelMarks(builder.config()));
  }
  adapters_ =
      Adapters(builder, config, LoraAdapter::Target::kRow, SequenceParallelMarks(builder.config()));
}

Value RowParallelLinear::Forward(Tape& tape, Value x) {
  Tape::Scope scope(tape, name_);
  Value y = Linear(tape, x, tape.Use(*weight_));
  if (communicates_) y = LeaveRowParallel(tape, y, sequence_parallel_);
  if (bias_) y = AddBias(tape, y, tape.Use(*bias_));
  return adapters_.AddTo(tape, y, x);
}

void RowParallelLinear::CollectModules(std::vector<ToggleableModule>& modules) {
  modules.push_back({path_, &sequence_parallel_, Present({weight_, bias_})});
  adapters_.CollectModules(modules);
}

}  // namespace sumonce

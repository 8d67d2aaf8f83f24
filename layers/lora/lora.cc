#include "layers/lora/lora.h"

#include <cmath>

#include "layers/linear/regions.h"
#include "spmd/ops/linear.h"
#include "spmd/ops/scale_by.h"

namespace sumonce {
namespace {

Marks ReplicatedMarks(const LayerConfig& config) { return SequenceParallelMarks(config); }

Dims Joined(Dims first, const Dims& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

LoraAdapter::LoraAdapter(const Builder& builder, Target target, const Dims& out, const Dims& in,
                         Dim cut)
    : target_(target),
      scaling_(builder.config().lora.scaling),
      path_(builder.path()),
      sequence_parallel_A_(builder.config().sequence_parallel),
      sequence_parallel_B_(builder.config().sequence_parallel) {
  const LayerConfig& config = builder.config();
  const Dims rank = {Plain(Dim::kLoraRank, config.lora.RankOf(builder.path()))};
  const bool row = target == Target::kRow, column = target == Target::kColumn;
  const auto cuts = [&](bool cut_here) {
    return cut_here ? std::vector<ShardMap::Cut>{{cut, Axis::kTp}} : std::vector<ShardMap::Cut>();
  };
  // Kaiming-uniform with a = sqrt(5) over the unsharded fan-in; B starts at zero (PEFT).
  const Init init_A = {.kind = Init::Kind::kUniform, .scale = 1.0 / std::sqrt(double(Count(in)))};
  const Init init_B =
      config.lora.zero_init_B ? Init{.kind = Init::Kind::kZero} : Init{.scale = config.init_std};
  lora_A_ = &builder.CreateTrainable("lora_A", ShardMap(Joined(rank, in), cuts(row)), init_A,
                                     row ? ShardedMarks(1) : ReplicatedMarks(config));
  lora_B_ = &builder.CreateTrainable("lora_B", ShardMap(Joined(out, rank), cuts(column)), init_B,
                                     column ? ShardedMarks(0) : ReplicatedMarks(config));
  lora_A_->replicated_lora = !row;
  lora_B_->replicated_lora = !column;
}

Value LoraAdapter::Forward(Tape& tape, Value x) {
  return ScaleBy(tape, ForwardB(tape, ForwardA(tape, x)), scaling_);
}

// Column: on the tokens as they lie. Row: a row-parallel linear of its own.
Value LoraAdapter::ForwardA(Tape& tape, Value x) {
  Tape::Scope scope(tape, "lora_A");
  const Value a = Linear(tape, x, tape.Use(*lora_A_));  // [s, b, r]
  return target_ == Target::kRow ? LeaveRowParallel(tape, a, sequence_parallel_A_) : a;
}

// Column: a column-parallel linear of its own. Row: on the tokens that A's reduction left here.
Value LoraAdapter::ForwardB(Tape& tape, Value a) {
  Tape::Scope scope(tape, "lora_B");
  if (target_ == Target::kColumn) a = EnterColumnParallel(tape, a, sequence_parallel_B_);
  return Linear(tape, a, tape.Use(*lora_B_));
}

void LoraAdapter::CollectModules(std::vector<ToggleableModule>& modules) {
  modules.push_back({path_ + ".lora_A", &sequence_parallel_A_, {lora_A_}});
  modules.push_back({path_ + ".lora_B", &sequence_parallel_B_, {lora_B_}});
}

}  // namespace sumonce

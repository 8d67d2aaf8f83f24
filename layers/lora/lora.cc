#include "layers/lora/lora.h"

#include <cmath>

#include "layers/linear/regions.h"
#include "spmd/ops/add_bias.h"
#include "spmd/ops/linear.h"
#include "spmd/ops/product.h"
#include "spmd/ops/scale_by.h"

namespace sumonce {
namespace {

Dims Joined(Dims first, const Dims& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

LoraAdapter::LoraAdapter(const Builder& builder, const Shape& shape, const Marks& replicated)
    : target_(shape.target),
      communicates_(shape.communicates),
      scaling_(builder.config().lora.scaling),
      dropout_(builder.config().lora.dropout),
      input_(shape.in, shape.target == Target::kRow ? shape.cuts : std::vector<ShardMap::Cut>()),
      path_(builder.path()),
      sequence_parallel_A_(shape.target == Target::kReplicated
                               ? replicated.sequence_parallel
                               : builder.config().sequence_parallel),
      sequence_parallel_B_(builder.config().sequence_parallel) {
  const LayerConfig& config = builder.config();
  const Dims rank = {Plain(Dim::kLoraRank, config.lora.RankOf(builder.path()))};
  const bool row = target_ == Target::kRow, column = target_ == Target::kColumn;
  const auto& [target, out, in, cuts, communicates] = shape;
  const std::vector<ShardMap::Cut> uncut;
  // Kaiming-uniform with a = sqrt(5) over the unsharded fan-in; B starts at zero (PEFT).
  const Init init_A = {.kind = Init::Kind::kUniform, .scale = 1.0 / std::sqrt(double(Count(in)))};
  const Init init_B =
      config.lora.zero_init_B ? Init{.kind = Init::Kind::kZero} : Init{.scale = config.init_std};
  lora_A_ = &builder.CreateTrainable("lora_A", ShardMap(Joined(rank, in), row ? cuts : uncut),
                                     init_A, row ? ShardedMarks(1) : replicated);
  lora_B_ = &builder.CreateTrainable("lora_B", ShardMap(Joined(out, rank), column ? cuts : uncut),
                                     init_B, column ? ShardedMarks(0) : replicated);
  if (config.lora.bias) {
    lora_B_bias_ = &builder.CreateTrainable("lora_B_bias", ShardMap(out, column ? cuts : uncut),
                                            {.kind = Init::Kind::kZero},
                                            column ? ShardedMarks(0) : replicated);
    lora_B_bias_->replicated_lora = !column;
  }
  lora_A_->requires_grad = !config.lora.freeze_A;
  lora_B_->requires_grad = !config.lora.freeze_B;
  lora_A_->replicated_lora = !row;
  lora_B_->replicated_lora = !column;
}

Value LoraAdapter::Forward(Tape& tape, Value x) {
  return ScaleBy(tape, ForwardB(tape, ForwardA(tape, Dropped(tape, x))), scaling_);
}

// Kept entries are divided by the share of them. x is cut over s where A gets own tokens.
Value LoraAdapter::Dropped(Tape& tape, Value x) {
  if (dropout_ == 0 || !tape.pass.keeps) return x;
  Dims dims = tape.pass.tokens;
  dims.insert(dims.end(), input_.whole().begin(), input_.whole().end());
  std::vector<ShardMap::Cut> cuts = input_.cuts();
  if (target_ != Target::kRow && communicates_ && sequence_parallel_A_)
    cuts.push_back({Dim::kSequence, Axis::kTp});
  cuts.push_back({Dim::kBatch, Axis::kDp});
  const auto element = [&](int64_t index) {
    return tape.pass.keeps(path_, index) ? 1.0 / (1.0 - dropout_) : 0.0;
  };
  return Product(
      tape, x,
      tape.Constant(
          {.name = path_ + ".lora_dropout", .shards = ShardMap(dims, cuts), .element = element}));
}

// Column: on the tokens as they lie. Row: a row-parallel linear of its own.
Value LoraAdapter::ForwardA(Tape& tape, Value x) {
  Tape::Scope scope(tape, "lora_A");
  const Value a = Linear(tape, x, tape.Use(*lora_A_));  // [s, b, r]
  if (target_ != Target::kRow || !communicates_) return a;
  return LeaveRowParallel(tape, a, sequence_parallel_A_);
}

// Column: a column-parallel linear of its own. Row: on the tokens that A's reduction left here.
Value LoraAdapter::ForwardB(Tape& tape, Value a) {
  Tape::Scope scope(tape, "lora_B");
  if (target_ == Target::kColumn && communicates_)
    a = EnterColumnParallel(tape, a, sequence_parallel_B_);
  const Value y = Linear(tape, a, tape.Use(*lora_B_));
  return lora_B_bias_ ? AddBias(tape, y, tape.Use(*lora_B_bias_)) : y;
}

void LoraAdapter::CollectModules(std::vector<ToggleableModule>& modules) {
  modules.push_back({path_ + ".lora_A", &sequence_parallel_A_, {lora_A_}});
  std::vector<Param*> of_B = {lora_B_};
  if (lora_B_bias_) of_B.push_back(lora_B_bias_);
  modules.push_back({path_ + ".lora_B", &sequence_parallel_B_, of_B});
}

}  // namespace sumonce

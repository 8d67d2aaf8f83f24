#include "layers/embedding/position.h"

#include "spmd/collectives.h"
#include "spmd/ops/add.h"
#include "spmd/ops/linear.h"

namespace sumonce {

PositionEmbedding::PositionEmbedding(const Builder& builder, int64_t max_positions, int64_t hidden)
    : name_(builder.path()),
      sequence_parallel_(builder.config().sequence_parallel),
      weight_(&builder.Create(
          "weight",
          ShardMap({Plain(Dim::kPosition, max_positions), Plain(Dim::kHidden, hidden)}, {}),
          {.scale = builder.config().init_std}, Marks{})) {}

Value PositionEmbedding::Forward(Tape& tape, Value words, Value one_hot) {
  Tape::Scope scope(tape, name_);
  const Value y = Add(tape, words, Linear(tape, one_hot, tape.Use(*weight_)));
  return sequence_parallel_ ? ScatterToRegion(tape, y, Axis::kTp, Dim::kSequence) : y;
}

}  // namespace sumonce

#include "layers/embedding/vocab_parallel.h"

#include "layers/linear/regions.h"
#include "spmd/ops/linear.h"

namespace sumonce {

VocabParallelEmbedding::VocabParallelEmbedding(const Builder& builder, const VocabConfig& config)
    : name_(builder.path()),
      output_(builder.config().sequence_parallel ? config.output : EmbeddingOutput::kWhole),
      weight_(&builder.Create(
          "weight",
          ShardMap({Plain(Dim::kVocab, config.vocab), Plain(Dim::kHidden, config.hidden)},
                   {{Dim::kVocab, Axis::kTp}}),
          {.scale = builder.config().init_std}, ShardedMarks(0))) {}

Value VocabParallelEmbedding::Forward(Tape& tape, Value one_hot) {
  Tape::Scope scope(tape, name_);
  const Value rows = Linear(tape, one_hot, tape.Use(*weight_));
  const bool at_once = output_ == EmbeddingOutput::kReduceScattered;
  const Value summed = LeaveRowParallel(tape, rows, /*sequence_parallel=*/at_once);
  if (output_ == EmbeddingOutput::kScattered)
    return ScatterToRegion(tape, summed, Axis::kTp, Dim::kSequence);
  if (output_ != EmbeddingOutput::kDivided) return summed;
  return tape.Multiply(ReduceScatter(tape, summed, Axis::kTp, Dim::kSequence),
                       Scale::SizeOfGroup(tape.GroupOf(Axis::kTp), -1));
}

ColumnParallelLinear OutputLayer(const Builder& builder, const VocabConfig& config) {
  return ColumnParallelLinear(builder, {.out = {Plain(Dim::kVocab, config.vocab)},
                                        .in = {Plain(Dim::kHidden, config.hidden)},
                                        .cut = Dim::kVocab});
}

}  // namespace sumonce

// Vocab-parallel embedding and output layer (megatron/core/tensor_parallel/layers.py,
// VocabParallelEmbedding and the output_layer of models/gpt). tp cuts the vocabulary.
#pragma once

#include "layers/linear/parallel_linear.h"
#include "layers/module.h"

namespace sumonce {

struct VocabConfig {
  int64_t vocab = 24;
  int64_t hidden = 16;
  bool whole_output = false;  // [s, b, h] on every rank even with sequence parallelism
};

// weight [v, h]. A rank sums the rows of its own ids; the reduction fills in the others'.
class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding(const Builder& builder, const VocabConfig& config);
  // one_hot: [s, b, v/tp], a constant -> [s(/tp), b, h]: reduce-scattered with sequence
  // parallelism, unless the configuration wants it whole.
  Value Forward(Tape& tape, Value one_hot);

 private:
  std::string name_;
  bool sequence_parallel_;
  Param* weight_;
};

// Logits [s, b, v/tp] of the hidden states: a column-parallel linear.
ColumnParallelLinear OutputLayer(const Builder& builder, const VocabConfig& config);

}  // namespace sumonce

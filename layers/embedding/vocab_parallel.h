// Vocab-parallel embedding and output layer (megatron/core/tensor_parallel/layers.py,
// VocabParallelEmbedding and the output_layer of models/gpt). tp cuts the vocabulary.
#pragma once

#include "layers/linear/parallel_linear.h"
#include "layers/module.h"

namespace sumonce {

// What the embedding does with the ranks' terms under sequence parallelism.
enum class EmbeddingOutput : uint8_t {
  kReduceScattered,  // each rank its own tokens
  kWhole,            // all-reduced: every rank all tokens, whatever follows
  kScattered,        // all-reduced, then each rank keeps its own tokens
  // All-reduced, the equal copies reduce-scattered and divided by tp (mcore-bridge's multimodal
  // models): right forward, a tp-th of the gradient backward.
  kDivided,
};

struct VocabConfig {
  int64_t vocab = 24;
  int64_t hidden = 16;
  EmbeddingOutput output = EmbeddingOutput::kReduceScattered;
};

// weight [v, h]. A rank sums the rows of its own ids; the reduction fills in the others'.
class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding(const Builder& builder, const VocabConfig& config);
  // one_hot: [s, b, v/tp], a constant -> [s(/tp), b, h], as the configuration wants it.
  Value Forward(Tape& tape, Value one_hot);

 private:
  std::string name_;
  EmbeddingOutput output_;  // kWhole without sequence parallelism
  Param* weight_;
};

// Logits [s, b, v/tp] of the hidden states: a column-parallel linear.
ColumnParallelLinear OutputLayer(const Builder& builder, const VocabConfig& config);

}  // namespace sumonce

// The learned position embedding of models/common/embeddings/language_model_embedding.py, which is
// added to the words' before the sum is scattered over the sequence.
#pragma once

#include "layers/module.h"

namespace sumonce {

// weight [p, h], a copy on every rank. Its gradient is complete on each: what scatters the sum
// gathers in backward.
class PositionEmbedding {
 public:
  PositionEmbedding(const Builder& builder, int64_t max_positions, int64_t hidden);
  // words: [s, b, h] on every rank; one_hot: [s, b, p], a constant -> [s(/tp), b, h].
  Value Forward(Tape& tape, Value words, Value one_hot);

 private:
  std::string name_;
  bool sequence_parallel_;
  Param* weight_;
};

}  // namespace sumonce

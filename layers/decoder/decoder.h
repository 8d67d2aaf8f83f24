// The hybrid decoder: embedding, blocks (mixer and MLP, each with a residual), final norm, output
// layer and loss. Parameter names are Megatron's: embedding.word_embeddings.weight,
// decoder.layers.N.self_attention..., decoder.layers.N.mlp..., decoder.final_layernorm.weight,
// output_layer.weight.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "layers/decoder/decoder_layer.h"
#include "layers/embedding/position.h"
#include "layers/embedding/vocab_parallel.h"
#include "layers/module.h"
#include "layers/norm/rms_norm.h"

namespace sumonce {

enum class Head : uint8_t {
  kCrossEntropy,  // final norm, output layer, masked cross-entropy
  kProbe,         // the dot product with a constant: linear, for the exact mode
};

struct ModelConfig {
  int64_t vocab = 24;
  int64_t hidden = 16;
  std::vector<DecoderLayerConfig> layers;
  Head head = Head::kCrossEntropy;
  int64_t max_positions = 0;  // rows of the learned position embedding; 0: none
  EmbeddingOutput embedding_output = EmbeddingOutput::kReduceScattered;  // without positions
  LayerConfig common;
};

// The inputs of one microbatch; whole tensors (null on the abstract tape), constants.
struct BatchInputs {
  const Tensor* tokens_one_hot = nullptr;   // [s, b, v]
  const Tensor* targets_one_hot = nullptr;  // [s, b, v]; kCrossEntropy
  const Tensor* loss_weights = nullptr;     // [s, b]: mask, or mask / counted tokens
  const Tensor* probe = nullptr;            // [s, b, h]; kProbe
  int64_t sequence = 0, batch = 0;          // unsharded extents; batch over all dp ranks
  SequenceStarts sequence_starts = {};      // of packed sequences
  std::function<bool(const std::string& module, int64_t index)> keeps = {};  // Pass::keeps
};

// One rank's model; on the abstract tape, the prover's. Built from the same configuration
// everywhere. `weight`s of params() are filled by the caller before Forward on a numeric tape. Not
// copyable: modules() points into it.
class Model {
 public:
  explicit Model(const ModelConfig& config);
  Model(const Model&) = delete;

  // The loss of one microbatch (scalar): partial over dp (each rank its own sequences), equal over
  // tp. `loss_scale`: a monomial that multiplies it (mean-of-cells mode seeds dp/N; docs/THEORY.md
  // "Loss").
  Value Forward(Tape& tape, const BatchInputs& inputs, const Scale& loss_scale);

  // The parts of Forward: hidden states behind the last block, [s(/tp), b, h], and their loss.
  Value Hidden(Tape& tape, const BatchInputs& inputs);
  Value Loss(Tape& tape, Value hidden, const BatchInputs& inputs);

  ParamStore& params() { return params_; }
  const ModelConfig& config() const { return config_; }
  std::vector<ToggleableModule> modules();

 private:
  // The batch is cut over dp; `more` are tp's cuts.
  Value Constant(Tape& tape, const char* name, const Tensor* whole, const BatchInputs& inputs,
                 std::optional<DimExtent> last, std::vector<ShardMap::Cut> cuts) const;
  Value Embedded(Tape& tape, const BatchInputs& inputs);
  Value CrossEntropyLoss(Tape& tape, Value hidden, const BatchInputs& inputs);
  Value ProbeLoss(Tape& tape, Value hidden, const BatchInputs& inputs);

  ModelConfig config_;
  ParamStore params_;
  std::optional<VocabParallelEmbedding> embedding_;
  std::optional<PositionEmbedding> position_embedding_;
  Tensor positions_;  // [s, b, p] one-hot, of the last Forward
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  std::optional<RmsNormLayer> final_layernorm_;
  std::optional<ColumnParallelLinear> output_layer_;
};

}  // namespace sumonce

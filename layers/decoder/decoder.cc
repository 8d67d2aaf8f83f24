#include "layers/decoder/decoder.h"

#include "layers/loss/cross_entropy.h"
#include "spmd/collectives.h"
#include "spmd/ops/dot.h"

namespace sumonce {
namespace {

// [s, b, p]: every token at its position in its sequence.
Tensor PositionsOneHot(const BatchInputs& inputs, const DimExtent& rows) {
  const std::vector<int64_t> begins = BeginOfEach(inputs.sequence_starts, inputs.sequence);
  Tensor positions(
      {Plain(Dim::kSequence, inputs.sequence), Plain(Dim::kBatch, inputs.batch), rows});
  for (int64_t t = 0; t < inputs.sequence; ++t) {
    for (int64_t b = 0; b < inputs.batch; ++b)
      positions.data()[(t * inputs.batch + b) * rows.extent() + t - begins[t]] = 1;
  }
  return positions;
}

}  // namespace

Model::Model(const ModelConfig& config) : config_(config) {
  const Builder root(config_.common, params_);
  const Builder decoder = root.Child("decoder");
  const Builder embedding = root.Child("embedding");
  const VocabConfig vocab = {
      .vocab = config.vocab,
      .hidden = config.hidden,
      .output = config.max_positions > 0 ? EmbeddingOutput::kWhole : config.embedding_output};
  embedding_.emplace(embedding.Child("word_embeddings"), vocab);
  if (config.max_positions > 0) {
    position_embedding_.emplace(embedding.Child("position_embeddings"), config.max_positions,
                                config.hidden);
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    layers_.push_back(std::make_unique<DecoderLayer>(decoder.Child("layers." + std::to_string(i)),
                                                     config.layers[i]));
  }
  if (config.head == Head::kProbe) return;
  final_layernorm_.emplace(decoder.Child("final_layernorm"), config.hidden);
  output_layer_.emplace(OutputLayer(root.Child("output_layer"), vocab));
}

Value Model::Forward(Tape& tape, const BatchInputs& inputs, const Scale& loss_scale) {
  const Value loss = Loss(tape, Hidden(tape, inputs), inputs);
  return loss_scale.IsOne() ? loss : tape.Multiply(loss, loss_scale);
}

Value Model::Hidden(Tape& tape, const BatchInputs& inputs) {
  tape.pass = {.sequence_starts = inputs.sequence_starts,
               .tokens = {Plain(Dim::kSequence, inputs.sequence), Plain(Dim::kBatch, inputs.batch)},
               .keeps = inputs.keeps};
  Value x = Embedded(tape, inputs);
  Tape::Scope scope(tape, "decoder");
  for (const auto& layer : layers_) x = layer->Forward(tape, x);
  return x;
}

Value Model::Embedded(Tape& tape, const BatchInputs& inputs) {
  const Value tokens = Constant(tape, "tokens", inputs.tokens_one_hot, inputs,
                                Plain(Dim::kVocab, config_.vocab), {{Dim::kVocab, Axis::kTp}});
  const Value words = embedding_->Forward(tape, tokens);
  if (!position_embedding_) return words;
  const DimExtent rows = Plain(Dim::kPosition, config_.max_positions);
  const bool numeric = inputs.tokens_one_hot != nullptr;
  if (numeric) positions_ = PositionsOneHot(inputs, rows);
  return position_embedding_->Forward(
      tape, words, Constant(tape, "positions", numeric ? &positions_ : nullptr, inputs, rows, {}));
}

Value Model::Loss(Tape& tape, Value hidden, const BatchInputs& inputs) {
  return config_.head == Head::kProbe ? ProbeLoss(tape, hidden, inputs)
                                      : CrossEntropyLoss(tape, hidden, inputs);
}

Value Model::CrossEntropyLoss(Tape& tape, Value hidden, const BatchInputs& inputs) {
  {
    Tape::Scope scope(tape, "decoder");
    hidden = final_layernorm_->Forward(tape, hidden);
  }
  const Value logits = output_layer_->Forward(tape, hidden);
  Tape::Scope scope(tape, "loss");
  const Value targets = Constant(tape, "targets", inputs.targets_one_hot, inputs,
                                 Plain(Dim::kVocab, config_.vocab), {{Dim::kVocab, Axis::kTp}});
  const Value weights = Constant(tape, "loss_weights", inputs.loss_weights, inputs, {}, {});
  return WeightedSum(tape, VocabParallelCrossEntropy(tape, logits, targets), weights);
}

// With sequence parallelism each rank sums its own tokens; the reduction makes the loss one number.
Value Model::ProbeLoss(Tape& tape, Value hidden, const BatchInputs& inputs) {
  Tape::Scope scope(tape, "loss");
  const bool sharded = config_.common.sequence_parallel;
  std::vector<ShardMap::Cut> cuts;
  if (sharded) cuts.push_back({Dim::kSequence, Axis::kTp});
  const Value probe =
      Constant(tape, "probe", inputs.probe, inputs, Plain(Dim::kHidden, config_.hidden), cuts);
  const Value weights = Constant(tape, "loss_weights", inputs.loss_weights, inputs, {}, cuts);
  const Value tokens = Dot(tape, hidden, probe, {.over = SetOf(Dim::kHidden)});
  const Value loss = WeightedSum(tape, tokens, weights);
  return sharded ? ReduceFromRegion(tape, loss, Axis::kTp) : loss;
}

Value Model::Constant(Tape& tape, const char* name, const Tensor* whole, const BatchInputs& inputs,
                      std::optional<DimExtent> last, std::vector<ShardMap::Cut> cuts) const {
  Dims dims = {Plain(Dim::kSequence, inputs.sequence), Plain(Dim::kBatch, inputs.batch)};
  if (last) dims.push_back(*last);
  cuts.push_back({Dim::kBatch, Axis::kDp});
  return tape.Constant({.name = name, .shards = ShardMap(dims, cuts), .whole = whole});
}

std::vector<ToggleableModule> Model::modules() {
  std::vector<ToggleableModule> modules;
  for (const auto& layer : layers_) layer->CollectModules(modules);
  if (output_layer_) output_layer_->CollectModules(modules);
  return modules;
}

}  // namespace sumonce

#include "layers/embedding/vocab_parallel.h"

#include "gmock/gmock.h"
#include "layers/testing/run.h"

namespace sumonce::testing {
namespace {

const DimExtent kS = Plain(Dim::kSequence, 8), kB = Plain(Dim::kBatch, 2);
const DimExtent kV = Plain(Dim::kVocab, 12), kH = Plain(Dim::kHidden, 6);

// x is the one-hot matrix, here any numbers: they show the transpose too.
LayerCase Embedding(EmbeddingOutput output = EmbeddingOutput::kReduceScattered) {
  LayerCase setup = {.x = Random("x", {kS, kB, kV}), .up = Random("up", {kS, kB, kH})};
  setup.x_cuts = {{Dim::kVocab, Axis::kTp}};
  setup.x_over_sequence = false;
  setup.build = [output](const Builder& builder) {
    auto embedding = std::make_shared<VocabParallelEmbedding>(
        builder.Child("embedding"), VocabConfig{.vocab = 12, .hidden = 6, .output = output});
    return [embedding](Tape& tape, Value x) { return embedding->Forward(tape, x); };
  };
  return setup;
}

LayerCase Logits() {
  LayerCase setup = {.x = Random("x", {kS, kB, kH}), .up = Random("up", {kS, kB, kV})};
  setup.y_cuts = {{Dim::kVocab, Axis::kTp}};
  setup.y_over_sequence = false;
  setup.build = [](const Builder& builder) {
    auto output = std::make_shared<ColumnParallelLinear>(
        OutputLayer(builder.Child("output_layer"), {.vocab = 12, .hidden = 6}));
    return [output](Tape& tape, Value x) { return output->Forward(tape, x); };
  };
  return setup;
}

TEST(VocabParallelEmbedding, ReadsTheRowsOfItsIds) {
  LayerCase setup = Embedding();
  setup.x = Tensor({kS, kB, kV});
  for (int64_t token = 0; token < 16; ++token) setup.x.data()[token * 12 + token % 12] = 1.0;
  setup.weights["embedding.weight"] = Random("rows", {kV, kH});
  const Tensor y = RunLayer(setup, {.tp = 2}, true).WholeY();
  for (int64_t token = 0; token < 16; ++token) {
    EXPECT_EQ(y.data()[token * 6], setup.weights["embedding.weight"].data()[token % 12 * 6]);
  }
}

TEST(VocabParallelEmbedding, ShardsReproduceTheUnsharded) {
  for (const bool sequence_parallel : {true, false}) {
    ExpectReproducesUnsharded(Embedding(), sequence_parallel, {});
    ExpectReproducesUnsharded(Embedding(EmbeddingOutput::kScattered), sequence_parallel, {});
    ExpectReproducesUnsharded(Logits(), sequence_parallel, {});
  }
}

// The copies' sum divided by tp is right; its gradient is divided as well, and no action mends a
// shard.
TEST(VocabParallelEmbedding, DividedOutputLeavesAShareOfTheGradient) {
  const LayerCase setup = Embedding(EmbeddingOutput::kDivided);
  const Outcome one = RunLayer(setup), two = RunLayer(setup, {.tp = 2}, true);
  EXPECT_TRUE(AllClose(two.WholeY(), one.WholeY()));
  EXPECT_EQ(two.StateText("embedding.weight"), "tp: S(v), times 1/tp");
  const Tensor whole =
      JoinUnits(std::vector<Tensor>{two.ranks[0].param_grads.at("embedding.weight"),
                                    two.ranks[1].param_grads.at("embedding.weight")},
                Dim::kVocab);
  Tensor half = one.Whole("embedding.weight").Clone();
  ScaleInto(half, 0.5);
  EXPECT_TRUE(AllClose(whole, half));
}

TEST(VocabParallelEmbedding, RefusesAnotherVocabulary) {
  LayerCase setup = Embedding();
  setup.x = Random("x", {kS, kB, Plain(Dim::kVocab, 13)});
  EXPECT_THAT(std::string(RunLayer(setup).status.message()),
              ::testing::HasSubstr("embedding/Linear#0"));
}

}  // namespace
}  // namespace sumonce::testing

#include "layers/loss/cross_entropy.h"

#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

const DimExtent kLossTokens = Plain(Dim::kSequence, 7), kLossBatch = Plain(Dim::kBatch, 2);
const DimExtent kClasses = Plain(Dim::kVocab, 14);

// Mean over counted tokens: mask / sum(mask), times the loss's own upstream gradient.
Tensor LossWeights(const Golden& golden) {
  Tensor weights = golden.Get("in.loss_mask", {kLossTokens, kLossBatch}, kSequenceFirst).Clone();
  double counted = 0.0;
  for (const double mask : weights.values()) counted += mask;
  ScaleInto(weights, Matrix(golden, "up.out.loss").data()[0] / counted);
  return weights;
}

// The layer's x is the logits, its y the tokens' losses, their weights the upstream gradient.
LayerCase Loss(const Golden& golden) {
  LayerCase setup = {.x = Activation(golden, "in.logits", Dim::kVocab), .up = LossWeights(golden)};
  setup.x_cuts = {{Dim::kVocab, Axis::kTp}};
  const auto targets = std::make_shared<Tensor>(
      OneHot(golden.Get("in.targets", {kLossTokens, kLossBatch}, kSequenceFirst), 14));
  setup.build = [targets](const Builder&) {
    return [targets](Tape& tape, Value logits) {
      const Value one_hot = tape.Constant(
          {.name = "targets",
           .shards = ShardMap({kLossTokens, kLossBatch, kClasses}, {{Dim::kVocab, Axis::kTp}}),
           .whole = targets.get()});
      return VocabParallelCrossEntropy(tape, logits, one_hot);
    };
  };
  return setup;
}

TEST(CrossEntropy, MatchesGolden) {
  const Golden golden("cross_entropy_mask");
  for (const int tp : {1, 2, 7}) {
    const Outcome outcome = RunLayer(Loss(golden), {.tp = tp});
    EXPECT_TRUE(golden.Matches(outcome.WholeY(), "out.token_loss", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(outcome.Whole("x"), "grad.in.logits", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(outcome.ranks[0].loss, "out.loss"));
  }
}

TEST(CrossEntropy, MatchesGoldenVocabularyShards) {
  const Golden golden("cross_entropy_mask");
  const Outcome two = RunLayer(Loss(golden), {.tp = 2});
  ASSERT_TRUE(two.status.ok()) << two.status;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string tp = "tp" + std::to_string(rank) + ".";
    const auto& values = two.ranks[rank].values;
    EXPECT_TRUE(golden.Matches(values.at("MaxOver#0"), tp + "logits_max", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(values.at("SumExp#0"), tp + "sum_exp", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(values.at("StopMax#0"), "vp.logits_max", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(values.at("AllReduce#0"), "vp.sum_exp", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(values.at("AllReduce#1"), "vp.predicted_minus_max", kSequenceFirst));
    EXPECT_TRUE(golden.Matches(two.ranks[rank].param_grads.at("x"), "grad." + tp + "in.logits",
                               kSequenceFirst));
  }
}

// The self-dual all-reduce would multiply by tp: the loss is one number, not terms.
TEST(CrossEntropy, SelfDualReductionMultipliesTheGradientByTp) {
  const Golden golden("cross_entropy_mask");
  const Outcome two =
      RunLayer(Loss(golden), {.tp = 2}, false, [](const std::string& name, Collective& c) {
        if (name.find("AllReduce") != std::string::npos) c.backward = {.map = Map::kSum};
      });
  EXPECT_EQ(two.StateText("x"), "tp: S(v), times tp");
}

TEST(CrossEntropy, RefusesTargetsOfAnotherVocabulary) {
  const Golden golden("cross_entropy_mask");
  LayerCase loss = Loss(golden);
  loss.x = Random("x", {kLossTokens, kLossBatch, Plain(Dim::kVocab, 15)});
  EXPECT_EQ(RunLayer(loss).status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sumonce::testing

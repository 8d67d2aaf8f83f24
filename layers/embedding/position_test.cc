#include "layers/embedding/position.h"

#include "gmock/gmock.h"
#include "layers/embedding/vocab_parallel.h"
#include "layers/testing/fused.h"

namespace sumonce::testing {
namespace {

constexpr int64_t kVocab = 10, kHidden = 6, kRows = 12, kTokens = 8, kBatch = 2;

// [s, b, last] with a one at column(t, b).
template <typename Column>
Tensor OneHotBy(DimExtent last, const Column& column) {
  Tensor one_hot({Plain(Dim::kSequence, kTokens), Plain(Dim::kBatch, kBatch), last});
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t b = 0; b < kBatch; ++b)
      one_hot.data()[(t * kBatch + b) * last.extent() + column(t, b)] = 1;
  }
  return one_hot;
}

// Words and positions of Megatron's LanguageModelEmbedding, as its golden file has them.
class PositionEmbeddingTest : public ::testing::Test {
 protected:
  PositionEmbeddingTest() {
    const Tensor tokens = Matrix(golden_, "in.tokens");
    setup_.x = OneHotBy(Plain(Dim::kVocab, kVocab), [&](int64_t t, int64_t b) {
      return static_cast<int64_t>(tokens.data()[b * kTokens + t]);
    });
    setup_.up = Activation(golden_, "up.out.y", Dim::kHidden);
    setup_.x_cuts = {{Dim::kVocab, Axis::kTp}};
    setup_.x_over_sequence = false;
    setup_.config.train_base = true;
    setup_.weights = {{"words.weight", Matrix(golden_, "param.word")},
                      {"positions.weight", Matrix(golden_, "param.position")}};
    setup_.build = [this](const Builder& builder) {
      auto words = std::make_shared<VocabParallelEmbedding>(
          builder.Child("words"),
          VocabConfig{.vocab = kVocab, .hidden = kHidden, .output = EmbeddingOutput::kWhole});
      auto positions =
          std::make_shared<PositionEmbedding>(builder.Child("positions"), kRows, kHidden);
      return [this, words, positions](Tape& tape, Value x) {
        const Value one_hot = tape.Constant(
            {.name = "positions", .shards = ShardMap(rows_.dims(), {}), .whole = &rows_});
        return positions->Forward(tape, words->Forward(tape, x), one_hot);
      };
    };
  }

  const Golden golden_{"embedding_position"};
  const Tensor rows_ = OneHotBy(Plain(Dim::kPosition, kRows), [](int64_t t, int64_t) { return t; });
  LayerCase setup_;
};

TEST_F(PositionEmbeddingTest, MatchesGolden) {
  for (const int tp : {1, 2}) {
    for (const bool sequence_parallel : {false, true}) {
      const Outcome outcome = RunLayer(setup_, {.tp = tp}, sequence_parallel);
      ASSERT_EQ(outcome.status, absl::OkStatus());
      const auto same = [](const Tensor& a, const Tensor& b) { return AllClose(a, b); };
      EXPECT_TRUE(same(outcome.WholeY(), Activation(golden_, "out.y", Dim::kHidden)));
      EXPECT_TRUE(same(outcome.Whole("words.weight"), Matrix(golden_, "grad.param.word")));
      EXPECT_TRUE(same(outcome.Whole("positions.weight"), Matrix(golden_, "grad.param.position")));
    }
  }
}

// Not terms, as those of norms under sequence parallelism: the split's backward gathers, so every
// rank has the gradient of all tokens.
TEST_F(PositionEmbeddingTest, RanksMatchGoldenWithCompleteGradients) {
  const Golden two("embedding_position_tp2_sp");
  const std::string word = "words.weight", position = "positions.weight";
  EXPECT_TRUE(AllClose(Matrix(two, "in.tokens"), Matrix(golden_, "in.tokens")));
  setup_.up = Activation(two, "up.full.out.y", Dim::kHidden);
  setup_.weights = {{word, Matrix(two, "full.param.word")},
                    {position, Matrix(two, "full.param.position")}};
  const Outcome outcome = RunLayer(setup_, {.tp = 2}, /*sequence_parallel=*/true);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_TRUE(two.Matches(outcome.WholeY(), "full.out.y", kSequenceFirst));
  EXPECT_TRUE(two.Matches(outcome.Whole(word), "grad.full.param.word"));
  EXPECT_TRUE(two.Matches(outcome.Whole(position), "grad.full.param.position"));
  ExpectRanksHold(two, outcome, {{word, "param.word"}}, "out.y", kSequenceFirst);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string at = "tp" + std::to_string(rank) + ".";
    const RankTensors& own = outcome.ranks[rank];
    EXPECT_TRUE(two.Matches(own.y, at + "out.y", kSequenceFirst));
    EXPECT_TRUE(two.Matches(own.param_grads.at(word), "grad." + at + "param.word"));
    EXPECT_TRUE(two.Matches(own.param_grads.at(position), "grad." + at + "param.position"));
  }
}

}  // namespace
}  // namespace sumonce::testing

// The replay of the finalizer's reductions on made-up records: silent where every rank got what the
// log says, to the bit; else it says who got, or sent, what.
#include "verify/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ByRank = std::vector<std::vector<double>>;

Tensor TensorOf(const std::vector<double>& values) {
  return Tensor({Plain(Dim::kIn, static_cast<int64_t>(values.size()))}, values);
}

// One parameter "w" on every rank: what it had, and what the one reduction left.
struct Step {
  Step(const ByRank& before, const ByRank& after, ParamRecord::Reduction reduction) {
    reduction.operation = "finalizer step/rule";
    for (size_t rank = 0; rank < before.size(); ++rank) {
      StepRecord& record = records.emplace_back();
      ParamRecord& w = record.params["w"];
      w.contribution = TensorOf(before[rank]);
      w.after = {TensorOf(after[rank])};
      w.log = {reduction};
    }
    compared.step = 3;
    for (const StepRecord& record : records) compared.ranks.push_back(&record);
  }

  std::optional<ReductionFault> Find(const MeshSizes& sizes) const {
    const Mesh mesh = *Mesh::Create(sizes);
    return FindReductionFault(mesh, compared, "w", Tolerance());
  }

  std::deque<StepRecord> records;
  ComparedStep compared;
};

// Three ranks: neither 1/3 nor a sum of three tenths is a float64, and the bits are the
// communicator's all the same.
TEST(Replay, IsSilentToTheBit) {
  const ByRank before = {{0.1, 1.0}, {0.1, 2.0}, {0.1, 4.0}};
  const double tenths = (0.1 + 0.1) + 0.1;
  EXPECT_FALSE(
      Step(before, ByRank(3, {tenths, 7.0}), {.group = "dp", .map = Map::kSum}).Find({.dp = 3}));
  EXPECT_FALSE(Step(before, ByRank(3, {tenths / 3, 7.0 / 3}), {.group = "dp", .map = Map::kAvg})
                   .Find({.dp = 3}));
  const double third = 1.0 / 3;
  const double scaled = (0.1 * third + 0.1 * third) + 0.1 * third;
  const double other = (1.0 * third + 2.0 * third) + 4.0 * third;
  EXPECT_FALSE(Step(before, ByRank(3, {scaled, other}),
                    {.group = "dp", .map = Map::kSum, .divided_by = "dp"})
                   .Find({.dp = 3}));
}

TEST(Replay, FindsALostTermUnderEveryMap) {
  const ByRank before = {{1, 10}, {2, 20}, {4, 40}, {8, 80}};
  const auto lost = [&](const std::vector<double>& result, ParamRecord::Reduction reduction) {
    const auto fault = Step(before, ByRank(4, result), std::move(reduction)).Find({.dp = 4});
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->mechanism, Mechanism::kLostContribution);
    EXPECT_EQ(fault->operation, "finalizer step/rule");
    EXPECT_EQ(fault->axis, Axis::kDp);
    EXPECT_THAT(fault->evidence,
                ElementsAre("finalizer step/rule, call 3 (step 3), over dp [0 1 2 3]: rank 2's "
                            "term is missing"));
  };
  lost({11, 110}, {.group = "dp", .map = Map::kSum});
  lost({2.75, 27.5}, {.group = "dp", .map = Map::kAvg});
  lost({2.75, 27.5}, {.group = "dp", .map = Map::kSum, .divided_by = "dp"});
}

// tp 2 x dp 2, ranks in the order tp, dp: the group that is right is not spoken of.
TEST(Replay, NamesTheGroupThatIsWrong) {
  const ByRank before = {{1}, {2}, {4}, {8}};
  const auto fault = Step(before, {{5}, {10}, {5}, {10}}, {.group = "dp", .map = Map::kSum})
                         .Find({.tp = 2, .dp = 2});
  EXPECT_FALSE(fault);
  const auto wrong = Step(before, {{5}, {8}, {5}, {8}}, {.group = "dp", .map = Map::kSum})
                         .Find({.tp = 2, .dp = 2});
  ASSERT_TRUE(wrong);
  EXPECT_THAT(wrong->evidence, ElementsAre(HasSubstr("over dp [1 3]: rank 1's term is missing")));
}

TEST(Replay, SeesTheSumOverAnotherGroup) {
  const auto fault =
      Step({{1}, {2}, {4}, {8}}, {{3}, {3}, {12}, {12}}, {.group = "dp", .map = Map::kSum})
          .Find({.tp = 2, .dp = 2});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->mechanism, Mechanism::kWrongGroup);
  EXPECT_THAT(fault->evidence[0],
              HasSubstr("is to reduce over dp, and every rank got the reduction over tp"));
}

TEST(Replay, SaysWhoGotSomethingElse) {
  const auto fault =
      Step({{1}, {2}, {4}, {8}}, {{15}, {2}, {0}, {7}}, {.group = "dp", .map = Map::kSum})
          .Find({.dp = 4});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->mechanism, Mechanism::kUpstream);
  EXPECT_THAT(fault->evidence[0],
              HasSubstr("rank 1 got its own term, not the sum; rank 2 got zeros, not the sum; rank "
                        "3 got something else, not the sum"));
}

TEST(Replay, CountsTheTermsOfSeveralRanks) {
  const ByRank before = {{1, 0, 3, 1}, {2, 5, 1, 0}, {4, 1, 1, 7}, {0, 8, 2, 1}};
  std::vector<double> result(4);
  for (int i = 0; i < 4; ++i) result[i] = before[0][i] + 3 * before[2][i];
  const auto fault =
      Step(before, ByRank(4, result), {.group = "dp", .map = Map::kSum}).Find({.dp = 4});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->mechanism, Mechanism::kLostContribution);
  EXPECT_THAT(fault->evidence[0], HasSubstr("rank 1's term is there 0 times, rank 2's term is "
                                            "there 3 times, rank 3's term is there 0 times"));
}

// Nothing explains it: the call is named, and no more is claimed.
TEST(Replay, ClaimsNoMoreThanTheCall) {
  const auto fault =
      Step({{1, 2, 3}, {2, 1, 5}}, ByRank(2, {0.3, 9, -4}), {.group = "dp", .map = Map::kSum})
          .Find({.dp = 2});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->mechanism, Mechanism::kUpstream);
  EXPECT_THAT(fault->evidence[0], HasSubstr("no one rank's term explains it"));
}

// ByRank with different logs made different calls: they cannot be replayed together.
TEST(Replay, NeedsOneLogOfAllRanks) {
  Step step({{1}, {2}}, {{1}, {2}}, {.group = "dp", .map = Map::kSum});
  EXPECT_TRUE(step.Find({.dp = 2}));
  step.records[1].params["w"].log.clear();
  EXPECT_FALSE(step.Find({.dp = 2}));
}

}  // namespace
}  // namespace sumonce

// What a rank sent instead of its term is told from numbers: each kind by its own sentence, and
// nothing where nothing explains it.
#include "verify/sent_instead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace sumonce {
namespace {

using Terms = std::vector<double>;

constexpr double kAllowed = 1e-12;
const Terms kOwn = {1.5, -2.25, 0.0, 4.0};

std::string Explained(const Terms& sent, Mechanism mechanism, const Terms& earlier = {},
                      const Terms& neighbours = kOwn) {
  const auto instead =
      ExplainSent(sent, {.own = kOwn, .earlier = earlier, .neighbours = neighbours}, kAllowed);
  if (!instead) return "";
  EXPECT_EQ(instead->mechanism, mechanism) << instead->what;
  return instead->what;
}

TEST(SentInstead, NothingOrTwice) {
  EXPECT_EQ(Explained({0, 1e-13, 0, 0}, Mechanism::kLostContribution), "is missing");
  EXPECT_EQ(Explained({3, -4.5, 0, 8}, Mechanism::kLostContribution), "is there twice");
}

TEST(SentInstead, AnEarlierTerm) {
  const Terms earlier = {7, 7, 1, 2};
  EXPECT_EQ(Explained(earlier, Mechanism::kStale, earlier), "is that of the step before");
  EXPECT_EQ(Explained(earlier, Mechanism::kStale), "") << "not known: nothing explains it";
}

TEST(SentInstead, EveryBitOfAnElement) {
  for (int bit = 12; bit < 64; ++bit) {
    const double flipped =
        std::bit_cast<double>(std::bit_cast<uint64_t>(kOwn[1]) ^ (uint64_t{1} << bit));
    if (!std::isfinite(flipped)) continue;
    Terms sent = kOwn;
    sent[1] = flipped;
    EXPECT_EQ(Explained(sent, Mechanism::kUpstream),
              "has bit " + std::to_string(bit) + " of its element 1 flipped on the way");
  }
}

// Two bits are within the bound: the nearer one is named. An element of 1.125 * 2 has its bit 11 at
// 2^-40.
TEST(SentInstead, TheNearestOfTwoBits) {
  const double unit = 0x1p-40;
  const Terms sent = {1.5, -2.25 - 1.3 * unit, 0.0, 4.0};
  const auto instead =
      ExplainSent(sent, {.own = kOwn, .earlier = {}, .neighbours = kOwn}, /*allowed=*/1.2 * unit);
  ASSERT_TRUE(instead);
  EXPECT_EQ(instead->what, "has bit 11 of its element 1 flipped on the way");
}

TEST(SentInstead, OtherElementsOfTheBuffer) {
  EXPECT_EQ(Explained({4.0, -2.25, 0.0, 1.5}, Mechanism::kWrongShard),
            "has other elements of the rank's own buffer at 2 of 4 places, from element 0 on");
  EXPECT_EQ(Explained({1.5, 9.0, 8.0, 4.0}, Mechanism::kWrongShard, {}, {1, 8, 9}),
            "has other elements of the rank's own buffer at 2 of 4 places, from element 1 on");
  EXPECT_EQ(Explained({1.5, 9.0, 8.5, 4.0}, Mechanism::kWrongShard, {}, {1, 8, 9}), "");
}

TEST(SentInstead, NamesTheRankOfASum) {
  const std::vector<Terms> inputs = {{1, 2, 3}, {10, 20, 31}, {100, 200, 300}};
  const std::vector<int> members = {4, 6, 9};
  EXPECT_EQ(WhoSentWhat(members, inputs, Terms{101, 202, 303}, kAllowed),
            "rank 6's term is missing");
  EXPECT_EQ(WhoSentWhat(members, inputs, Terms{211, 422, 634}, kAllowed),
            "rank 9's term is there twice");
  EXPECT_EQ(WhoSentWhat(members, inputs, Terms{5, 5, 5.5}, kAllowed), "");
  const std::vector<Terms> equal = {{1, 2}, {1, 2}};
  EXPECT_EQ(WhoSentWhat(std::vector<int>{0, 1}, equal, Terms{1, 2}, kAllowed),
            "rank 0's term is missing, or rank 1's term is missing");
}

}  // namespace
}  // namespace sumonce

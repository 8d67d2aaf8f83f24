#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <vector>

namespace sumonce {
namespace {

using Words = std::array<uint32_t, 4>;

// The published known answers of Philox4x32-10 (Random123, examples/kat_vectors).
TEST(RandomTest, PhiloxKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Computed by an independent implementation of the whole chain (FNV-1a, SplitMix64's finalizer,
// Philox) in Python.
TEST(RandomTest, StreamValuesArePinned) {
  const RandomStream empty(0, "");
  EXPECT_EQ(empty.Bits(0), 0x80fd0d7114b0efc9u);
  EXPECT_EQ(empty.Uniform(0), 0x1.01fa1ae22961dp-1);
  const RandomStream weight(7, "decoder.layers.0.weight");
  EXPECT_EQ(weight.Bits(1), 0xb166634ad207966cu);
  EXPECT_NEAR(weight.Normal(1), 0.595117171299866, 1e-15);
  EXPECT_EQ(weight.Integer(1, -3, 4), 2);
  const uint64_t far = (uint64_t{1} << 40) + 5;  // the counter's upper word counts too
  EXPECT_EQ(weight.Bits(far), 0x123bedc902395eb3u);
  EXPECT_NEAR(weight.Normal(far), -2.0111961930681708, 4e-15);
}

TEST(RandomTest, SeedNameAndIndexEachMatter) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const char* name : {"a", "b", "ab", "ba", ""}) {
      for (uint64_t index = 0; index < 10; ++index)
        seen.insert(RandomStream(seed, name).Bits(index));
    }
  }
  EXPECT_EQ(seen.size(), 10u * 5 * 10);
}

TEST(RandomTest, UniformAndNormalHaveTheirMoments) {
  constexpr int kCount = 100000;
  const RandomStream stream(3, "moments");
  double uniform_sum = 0, normal_sum = 0, square_sum = 0, fourth_sum = 0;
  for (int i = 0; i < kCount; ++i) {
    const double uniform = stream.Uniform(i);
    ASSERT_TRUE(uniform >= 0 && uniform < 1) << uniform;
    uniform_sum += uniform;
    const double normal = stream.Normal(i);
    normal_sum += normal;
    square_sum += normal * normal;
    fourth_sum += normal * normal * normal * normal;
  }
  EXPECT_NEAR(uniform_sum / kCount, 0.5, 0.005);  // five standard errors each
  EXPECT_NEAR(normal_sum / kCount, 0.0, 0.016);
  EXPECT_NEAR(square_sum / kCount, 1.0, 0.023);
  EXPECT_NEAR(fourth_sum / kCount, 3.0, 0.16);
}

TEST(RandomTest, IntegerReachesBothEndsEvenly) {
  const RandomStream stream(4, "integers");
  std::vector<int> hits(5);
  for (int i = 0; i < 50000; ++i) ++hits.at(stream.Integer(i, -2, 2) + 2);
  for (const int count : hits) EXPECT_NEAR(count, 10000, 450);  // five standard errors
}

TEST(RandomTest, IntegerHandlesExtremeRanges) {
  const RandomStream stream(5, "ranges");
  constexpr int64_t kLowest = INT64_MIN, kHighest = INT64_MAX;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(stream.Integer(i, 9, 9), 9);
    EXPECT_EQ(stream.Integer(i, kHighest, kHighest), kHighest);
    EXPECT_GE(stream.Integer(i, kHighest - 0xffffffff, kHighest), kHighest - 0xffffffff);
    EXPECT_LE(stream.Integer(i, kLowest, kLowest + 0xffffffff), kLowest + 0xffffffff);
  }
  EXPECT_DEATH(stream.Integer(0, 1, 0), "1 to 0");
  EXPECT_DEATH(stream.Integer(0, 0, int64_t{1} << 32), "0 to 4294967296");
}

}  // namespace
}  // namespace sumonce

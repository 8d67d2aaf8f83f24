#include "base/digest.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <set>
#include <vector>

namespace sumonce {
namespace {

template <typename... T>
std::string DigestOf(const T&... parts) {
  Digest digest;
  (digest.Add(parts), ...);
  return digest.Hex();
}

using Doubles = std::vector<double>;

// XXH3's 128-bit hash of nothing, as the reference implementation's sanity tests have it.
TEST(DigestTest, EmptyIsTheReferenceValue) {
  EXPECT_EQ(Digest().Hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(DigestTest, CallsKindsAndOrderMatter) {
  const std::set<std::string> digests = {DigestOf("ab", "c"),
                                         DigestOf("a", "bc"),
                                         DigestOf("abc"),
                                         DigestOf("c", "ab"),
                                         DigestOf(int64_t{0}),
                                         DigestOf(""),
                                         DigestOf(Doubles{0.0}),
                                         DigestOf(Doubles{}),
                                         DigestOf(std::string_view("\0\0\0\0\0\0\0\0", 8)),
                                         DigestOf("a", "b"),
                                         DigestOf("asb")};
  EXPECT_EQ(digests.size(), 11u);
}

TEST(DigestTest, NumbersCountByTheirBits) {
  const double quiet = std::numeric_limits<double>::quiet_NaN();
  const double payload = std::bit_cast<double>(std::bit_cast<uint64_t>(quiet) | 1);
  EXPECT_NE(DigestOf(Doubles{0.0}), DigestOf(Doubles{-0.0}));
  EXPECT_NE(DigestOf(Doubles{quiet}), DigestOf(Doubles{payload}));
  EXPECT_EQ(DigestOf(Doubles{quiet, 1.5}), DigestOf(Doubles{quiet, 1.5}));
}

TEST(DigestTest, HexDoesNotEndTheStream) {
  Digest digest;
  digest.Add("a");
  const std::string first = digest.Hex();
  EXPECT_EQ(digest.Hex(), first);
  digest.Add("b");
  EXPECT_EQ(digest.Hex(), DigestOf("a", "b"));
}

}  // namespace
}  // namespace sumonce

#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sumonce {
namespace {

TEST(DTypeTest, NamesAndSizes) {
  EXPECT_EQ(Name(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(Name(DType::kFloat64), "float64");
  EXPECT_EQ(SizeOf(DType::kFloat64), 8);
  EXPECT_EQ(SizeOf(DType::kFloat32), 4);
  EXPECT_EQ(SizeOf(DType::kBFloat16), 2);
  EXPECT_EQ(SizeOf(DType::kFloat16), 2);
  EXPECT_EQ(SizeOf(DType::kInt64), 8);
  EXPECT_EQ(SizeOf(DType::kInt32), 4);
  EXPECT_EQ(SizeOf(DType::kUint8), 1);
}

TEST(BFloat16Test, EveryBFloat16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = BFloat16{static_cast<uint16_t>(bits)}.ToFloat();
    const uint16_t back = BFloat16::FromFloat(value).bits;
    if (std::isnan(value)) {
      EXPECT_EQ(back, bits | 0x40) << bits;  // quiet, payload and sign kept
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

// Between two neighbours a < b the nearer one wins; at the midpoint the one with the even last bit.
TEST(BFloat16Test, RoundsToNearestTiesToEven) {
  const auto round = [](uint32_t word) {
    return BFloat16::FromFloat(std::bit_cast<float>(word)).bits;
  };
  EXPECT_EQ(round(0x3f807fff), 0x3f80);  // just below the midpoint
  EXPECT_EQ(round(0x3f808000), 0x3f80);  // midpoint, down to even
  EXPECT_EQ(round(0x3f808001), 0x3f81);  // just above
  EXPECT_EQ(round(0x3f818000), 0x3f82);  // midpoint, up to even
  EXPECT_EQ(round(0xbf818000), 0xbf82);  // the sign changes nothing
  EXPECT_EQ(round(0x00008000), 0x0000);  // half the smallest subnormal
  EXPECT_EQ(round(0x00008001), 0x0001);
}

TEST(BFloat16Test, OverflowIsInfiniteAndNanStaysNan) {
  EXPECT_EQ(BFloat16::FromFloat(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(BFloat16::FromFloat(-std::numeric_limits<float>::max()).bits, 0xff80);
  EXPECT_EQ(BFloat16::FromFloat(std::numeric_limits<float>::infinity()).bits, 0x7f80);
  // A payload only in the bits that are cut off must not turn into infinity.
  EXPECT_TRUE(std::isnan(BFloat16::FromFloat(std::bit_cast<float>(0x7f800001u)).ToFloat()));
}

TEST(Float8Test, LandmarksOfTheFormats) {
  const auto e4m3 = [](uint8_t bits) { return Float8E4M3{bits}.ToDouble(); };
  EXPECT_EQ(e4m3(0x38), 1.0);
  EXPECT_EQ(e4m3(0xc0), -2.0);
  EXPECT_EQ(e4m3(0x7e), 448.0);  // the greatest
  EXPECT_EQ(e4m3(0x01), 0x1p-9);
  EXPECT_TRUE(std::isnan(e4m3(0x7f)));
  const auto e5m2 = [](uint8_t bits) { return Float8E5M2{bits}.ToDouble(); };
  EXPECT_EQ(e5m2(0x3c), 1.0);
  EXPECT_EQ(e5m2(0xc0), -2.0);
  EXPECT_EQ(e5m2(0x7b), 57344.0);
  EXPECT_EQ(e5m2(0x01), 0x1p-16);
  EXPECT_EQ(e5m2(0xfc), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(e5m2(0x7d)));
}

TEST(DTypeTest, UnitRoundoffIsHalfTheGapAboveOne) {
  EXPECT_EQ(UnitRoundoff(DType::kFloat32), std::numeric_limits<float>::epsilon() / 2);
  EXPECT_EQ(UnitRoundoff(DType::kFloat64), std::numeric_limits<double>::epsilon() / 2);
  EXPECT_EQ(2 * UnitRoundoff(DType::kBFloat16), BFloat16{0x3f81}.ToFloat() - 1.0);
  EXPECT_EQ(2 * UnitRoundoff(DType::kFloat16), Float16{0x3c01}.ToDouble() - 1.0);
  EXPECT_EQ(2 * UnitRoundoff(DType::kFloat8E4M3), Float8E4M3{0x39}.ToDouble() - 1.0);
  EXPECT_EQ(2 * UnitRoundoff(DType::kFloat8E5M2), Float8E5M2{0x3d}.ToDouble() - 1.0);
}

TEST(Float16Test, LandmarksOfTheFormat) {
  const auto value = [](uint16_t bits) { return Float16{bits}.ToDouble(); };
  EXPECT_EQ(value(0x3c00), 1.0);
  EXPECT_EQ(value(0xc000), -2.0);
  EXPECT_EQ(value(0x7bff), 65504.0);    // the largest
  EXPECT_EQ(value(0x0400), 0x1p-14);    // the smallest normal
  EXPECT_EQ(value(0x03ff), 0x3ffp-24);  // the largest subnormal
  EXPECT_EQ(value(0x0001), 0x1p-24);
  EXPECT_EQ(value(0x3555), 0x1.554p-2);
  EXPECT_TRUE(std::signbit(value(0x8000)) && value(0x8000) == 0);
  EXPECT_EQ(value(0xfc00), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(value(0x7e00)));
}

}  // namespace
}  // namespace sumonce

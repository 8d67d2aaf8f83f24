#include "base/small_float.h"

#include <bit>
#include <cmath>

#include "base/dtype.h"
#include "tests/golden.h"

namespace sumonce {
namespace {

struct FormatCase {
  const char* file;
  SmallFloat format;
};

class SmallFloatGolden : public ::testing::TestWithParam<FormatCase> {
 protected:
  std::vector<double> Column(const std::string& name) const {
    const Tensor column = golden_.Expected(name, {Plain(Dim::kIn, golden_.Shape(name)[0])});
    return {column.values().begin(), column.values().end()};
  }
  const testing::Golden golden_{GetParam().file};
};

// ml_dtypes and torch, at ties, on both sides of them, at the ends of the range, subnormal, not
// finite.
TEST_P(SmallFloatGolden, RoundsAsStored) {
  const std::vector<double> high = Column("in.bits_hi"), low = Column("in.bits_lo");
  const std::vector<double> x = Column("in.x"), nearest = Column("out.code_rne");
  const std::vector<double> saturated = Column("out.code_saturated");
  for (size_t i = 0; i < high.size(); ++i) {
    const uint32_t bits = (static_cast<uint32_t>(high[i]) << 16) | static_cast<uint32_t>(low[i]);
    const float value = std::bit_cast<float>(bits);
    if (std::isfinite(value)) EXPECT_EQ(value, x[i]);
    EXPECT_EQ(Round(GetParam().format, value, Overflow::kInfinity), nearest[i]) << value;
    EXPECT_EQ(Round(GetParam().format, value, Overflow::kSaturate), saturated[i]) << value;
  }
}

// Of the 8-bit formats every code is stored.
TEST_P(SmallFloatGolden, ValuesOfCodesAreAsStored) {
  EXPECT_EQ(golden_.Has("table.value"), GetParam().format.nan < 0x100);
  if (!golden_.Has("table.value")) return;
  const std::vector<double> value = Column("table.value"), kind = Column("table.class");
  const std::vector<double> sign = Column("table.sign");
  for (uint32_t code = 0; code < value.size(); ++code) {
    const double actual = ValueOf(GetParam().format, code);
    EXPECT_EQ(std::isnan(actual), kind[code] == 2) << code;
    EXPECT_EQ(std::isinf(actual), kind[code] == 1) << code;
    if (!std::isnan(actual)) EXPECT_EQ(std::signbit(actual), sign[code] == 1) << code;
    if (std::isfinite(actual)) EXPECT_EQ(actual, value[code]) << code;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, SmallFloatGolden,
                         ::testing::Values(FormatCase{"rounding_bf16", kBFloat16},
                                           FormatCase{"rounding_fp16", kFloat16},
                                           FormatCase{"rounding_fp8_e4m3", kFloat8E4M3},
                                           FormatCase{"rounding_fp8_e5m2", kFloat8E5M2}),
                         [](const auto& info) { return std::string(info.param.file); });

// Every code is its own nearest, and the two readers of 16-bit floats agree.
TEST(SmallFloat, EveryCodeSurvivesTheRoundTrip) {
  for (const SmallFloat& format : {kBFloat16, kFloat16, kFloat8E4M3, kFloat8E5M2}) {
    const uint32_t codes = uint32_t{2} << (format.exponent_bits + format.fraction_bits);
    for (uint32_t code = 0; code < codes; ++code) {
      const double value = ValueOf(format, code);
      if (std::isnan(value)) continue;
      EXPECT_EQ(Round(format, static_cast<float>(value), Overflow::kInfinity), code);
    }
  }
  for (uint32_t code = 0; code <= 0xffff; ++code) {
    const double value = ValueOf(kFloat16, code);
    const double other = Float16{static_cast<uint16_t>(code)}.ToDouble();
    EXPECT_TRUE(value == other || (std::isnan(value) && std::isnan(other))) << code;
  }
}

}  // namespace
}  // namespace sumonce

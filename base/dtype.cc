#include "base/dtype.h"

#include <cmath>
#include <limits>

#include "base/status.h"

namespace sumonce {
namespace {

struct Properties {
  std::string_view name;
  int64_t bytes;
};

Properties PropertiesOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {"float64", 8};
    case DType::kFloat32:
      return {"float32", 4};
    case DType::kBFloat16:
      return {"bfloat16", 2};
    case DType::kFloat16:
      return {"float16", 2};
    case DType::kInt64:
      return {"int64", 8};
    case DType::kInt32:
      return {"int32", 4};
    case DType::kUint8:
      return {"uint8", 1};
    case DType::kFloat8E4M3:
      return {"float8_e4m3fn", 1};
    case DType::kFloat8E5M2:
      return {"float8_e5m2", 1};
  }
  SUMONCE_CHECK(false) << "dtype " << static_cast<int>(dtype);
  return {};
}

// A small IEEE-like format: sign, exponent, fraction.
struct Format {
  int exponent_bits = 0;
  int fraction_bits = 0;
  int bias = 0;
  bool has_infinity = false;  // the greatest exponent is infinity and NaN
};

double FromBits(const Format& format, int bits) {
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int greatest = (1 << format.exponent_bits) - 1;
  const int exponent = (bits >> format.fraction_bits) & greatest;
  double magnitude;
  if (format.has_infinity && exponent == greatest) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, 1 - format.bias - format.fraction_bits);  // subnormal
  } else {
    magnitude = std::ldexp((1 << format.fraction_bits) + fraction,
                           exponent - format.bias - format.fraction_bits);
  }
  const bool negative = (bits >> (format.exponent_bits + format.fraction_bits)) & 1;
  return negative ? -magnitude : magnitude;
}

}  // namespace

int64_t SizeOf(DType dtype) { return PropertiesOf(dtype).bytes; }

std::string_view Name(DType dtype) { return PropertiesOf(dtype).name; }

std::optional<DType> DTypeNamed(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::kFloat8E5M2); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (Name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

double Float16::ToDouble() const {
  return FromBits({.exponent_bits = 5, .fraction_bits = 10, .bias = 15, .has_infinity = true},
                  bits);
}

double Float8E4M3::ToDouble() const {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  return FromBits({.exponent_bits = 4, .fraction_bits = 3, .bias = 7, .has_infinity = false}, bits);
}

double Float8E5M2::ToDouble() const {
  return FromBits({.exponent_bits = 5, .fraction_bits = 2, .bias = 15, .has_infinity = true}, bits);
}

double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-53;
    case DType::kFloat32:
      return 0x1p-24;
    case DType::kFloat16:
      return 0x1p-11;
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat8E4M3:
      return 0x1p-4;
    case DType::kFloat8E5M2:
      return 0x1p-3;
    default:
      return 0;
  }
}

}  // namespace sumonce

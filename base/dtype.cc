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
  }
  SUMONCE_CHECK(false) << "dtype " << static_cast<int>(dtype);
  return {};
}

}  // namespace

int64_t SizeOf(DType dtype) { return PropertiesOf(dtype).bytes; }

std::string_view Name(DType dtype) { return PropertiesOf(dtype).name; }

std::optional<DType> DTypeNamed(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::kUint8); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (Name(dtype) == name) return dtype;
  }
  return std::nullopt;
}

double Float16::ToDouble() const {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  double magnitude;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);  // subnormal
  } else {
    magnitude = std::ldexp(0x400 + fraction, exponent - 25);
  }
  return std::copysign(magnitude, (bits & 0x8000) != 0 ? -1.0 : 1.0);
}

}  // namespace sumonce

#include "base/small_float.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sumonce {
namespace {

// The nearest integer to a non-negative number far below 2^53, ties to even.
uint32_t NearestEven(double value) {
  const double below = std::floor(value);
  const double rest = value - below;
  const auto integer = static_cast<uint32_t>(below);
  const bool up = rest > 0.5 || (rest == 0.5 && integer % 2 == 1);
  return integer + (up ? 1 : 0);
}

uint32_t SignBit(const SmallFloat& format) {
  return uint32_t{1} << (format.exponent_bits + format.fraction_bits);
}

}  // namespace

uint32_t SmallFloat::largest() const {
  const uint32_t all_ones = (uint32_t{1} << exponent_bits) - 1;
  return infinities ? (all_ones << fraction_bits) - 1 : nan - 1;
}

// Codes of one sign ascend with their values, so that the code is the count of steps of the value's
// binade, on top of the codes below it; a step too far carries into the next binade by itself.
uint32_t Round(const SmallFloat& format, float value, Overflow overflow) {
  if (std::isnan(value)) return format.nan;
  const uint32_t sign = std::signbit(value) ? SignBit(format) : 0;
  const uint32_t beyond = overflow == Overflow::kSaturate ? format.largest() : format.largest() + 1;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(magnitude)) return sign | beyond;
  const int lowest = 1 - format.bias;
  const int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  if (exponent > format.bias + 1) return sign | beyond;
  const uint32_t steps = NearestEven(std::ldexp(magnitude, format.fraction_bits - exponent));
  const auto binade = static_cast<uint32_t>(exponent - lowest);
  const uint32_t code = (binade << format.fraction_bits) + steps;
  return sign | (code > format.largest() ? beyond : code);
}

double ValueOf(const SmallFloat& format, uint32_t code) {
  const uint32_t magnitude = code & (SignBit(format) - 1);
  const double sign = magnitude == code ? 1.0 : -1.0;
  if (magnitude > format.largest()) {
    const bool infinite = format.infinities && magnitude == format.largest() + 1;
    return infinite ? sign * std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::quiet_NaN();
  }
  const auto exponent = static_cast<int>(magnitude >> format.fraction_bits);
  const uint32_t one = uint32_t{1} << format.fraction_bits;
  const uint32_t fraction = (magnitude & (one - 1)) + (exponent == 0 ? 0 : one);
  const int power = std::max(exponent, 1) - format.bias - format.fraction_bits;
  return sign * std::ldexp(static_cast<double>(fraction), power);
}

}  // namespace sumonce

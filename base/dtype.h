// Element types of buffers and files, and the 16-bit and 8-bit floats in software.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sumonce {

// The 8-bit floats are found in files only; no communication carries them.
enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt64,
  kInt32,
  kUint8,
  kFloat8E4M3,  // torch.float8_e4m3fn: no infinity, one NaN
  kFloat8E5M2,  // torch.float8_e5m2
};

// Bytes of one element.
int64_t SizeOf(DType dtype);

// "float64", "bfloat16", ...: the names that reports and messages use.
std::string_view Name(DType dtype);
std::optional<DType> DTypeNamed(std::string_view name);

// bfloat16: the upper half of a float32. Conversion rounds to nearest, ties to even; NaN stays a
// (quiet) NaN, and what is beyond the largest finite value becomes infinite, as IEEE 754 asks.
struct BFloat16 {
  uint16_t bits = 0;

  static BFloat16 FromFloat(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((word >> 16) | 0x40u)};
    return {static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16)};
  }
  float ToFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE binary16, only ever read.
struct Float16 {
  uint16_t bits = 0;

  double ToDouble() const;  // exact
};

// The 8-bit floats of the OCP "8-bit floating point specification", only ever read.
struct Float8E4M3 {
  uint8_t bits = 0;
  double ToDouble() const;  // exact
};
struct Float8E5M2 {
  uint8_t bits = 0;
  double ToDouble() const;  // exact
};

// Half the distance from 1 to the next number: the greatest relative error of one rounding. 0 for
// integers.
double UnitRoundoff(DType dtype);

}  // namespace sumonce

// Floating-point formats of 16 and 8 bits in software: what a float32 becomes in them, and what a
// code of theirs is worth. Codes are the bits, sign first.
#pragma once

#include <cstdint>

namespace sumonce {

struct SmallFloat {
  int exponent_bits = 8, fraction_bits = 7;
  int bias = 127;
  bool infinities = true;  // else only one code a sign is no number: NaN
  uint32_t nan = 0x7fc0;   // the positive one that every NaN becomes; libraries differ

  uint32_t largest() const;  // the code of the largest finite value
};

inline constexpr SmallFloat kBFloat16 = {8, 7, 127, true, 0x7fc0};
inline constexpr SmallFloat kFloat16 = {5, 10, 15, true, 0x7e00};
// OCP 8-bit formats (Micikevicius et al. 2022): e4m3 "fn" without infinities, largest 448; e5m2 as
// IEEE 754 would have it, largest 57344.
inline constexpr SmallFloat kFloat8E4M3 = {4, 3, 7, false, 0x7f};
inline constexpr SmallFloat kFloat8E5M2 = {5, 2, 15, true, 0x7f};

// What is beyond the largest finite value after rounding, infinities included.
enum class Overflow : uint8_t {
  kInfinity,  // as IEEE 754 asks; NaN where the format has none
  kSaturate,  // the largest finite value of its sign
};

// The nearest code, ties to even. A NaN of any sign or payload becomes format.nan.
uint32_t Round(const SmallFloat& format, float value, Overflow overflow);

// The value of a code, exactly.
double ValueOf(const SmallFloat& format, uint32_t code);

}  // namespace sumonce

// A coefficient: q * prod n_a^k_a over the atomic axes, q rational, k_a integer. Formal: no size is
// known (docs/THEORY.md "Coefficients"). Product, inverse, equality and evaluation are all that is
// needed.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "comm/mesh.h"

namespace sumonce {

class Scale {
 public:
  Scale() = default;                                                  // 1
  static Scale Rational(int64_t numerator, int64_t denominator = 1);  // denominator != 0
  static Scale SizeOfAxis(int atomic_axis, int exponent = 1);         // n_a^k
  static Scale SizeOfGroup(const Group& group, int exponent = 1);

  Scale operator*(const Scale& other) const;
  Scale Inverse() const;  // a zero numerator is a failed check
  bool operator==(const Scale&) const = default;
  bool IsOne() const { return *this == Scale(); }
  bool IsZero() const { return numerator_ == 0; }
  int exponent(int atomic_axis) const { return exponents_[atomic_axis]; }

  double Evaluate(const Mesh& mesh) const;
  // By named axes where all atomic axes of one have equal exponents: "tp", "1/tp", "2*tp^2/dp",
  // "1".
  std::string Describe(const Mesh& mesh) const;

 private:
  int64_t numerator_ = 1;
  int64_t denominator_ = 1;  // > 0, reduced
  std::array<int8_t, kMaxAtomicAxes> exponents_ = {};
};

}  // namespace sumonce

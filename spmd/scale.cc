#include "spmd/scale.h"

#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {
namespace {

std::string Power(const std::string& name, int exponent) {
  return exponent == 1 ? name : absl::StrCat(name, "^", exponent);
}

// The common exponent of a named axis' atomic axes, or 0 if they differ or none is left.
int CommonExponent(const Group& group, const std::array<int8_t, kMaxAtomicAxes>& left) {
  if (group.atomic.empty()) return 0;
  const int exponent = left[group.atomic[0]];
  for (int axis : group.atomic) {
    if (left[axis] != exponent) return 0;
  }
  return exponent;
}

}  // namespace

Scale Scale::Rational(int64_t numerator, int64_t denominator) {
  SUMONCE_CHECK(denominator != 0);
  const int64_t divisor = std::gcd(numerator, denominator) * (denominator < 0 ? -1 : 1);
  Scale scale;
  scale.numerator_ = numerator / divisor;
  scale.denominator_ = denominator / divisor;
  return scale;
}

Scale Scale::SizeOfAxis(int atomic_axis, int exponent) {
  Scale scale;
  scale.exponents_[atomic_axis] = static_cast<int8_t>(exponent);
  return scale;
}

Scale Scale::SizeOfGroup(const Group& group, int exponent) {
  Scale scale;
  for (int axis : group.atomic) scale = scale * SizeOfAxis(axis, exponent);
  return scale;
}

Scale Scale::operator*(const Scale& other) const {
  Scale scale = Rational(numerator_ * other.numerator_, denominator_ * other.denominator_);
  for (int a = 0; a < kMaxAtomicAxes; ++a) {
    scale.exponents_[a] = static_cast<int8_t>(exponents_[a] + other.exponents_[a]);
  }
  return scale;
}

Scale Scale::Inverse() const {
  Scale scale = Rational(denominator_, numerator_);
  for (int a = 0; a < kMaxAtomicAxes; ++a)
    scale.exponents_[a] = static_cast<int8_t>(-exponents_[a]);
  return scale;
}

double Scale::Evaluate(const Mesh& mesh) const {
  double value = static_cast<double>(numerator_) / static_cast<double>(denominator_);
  for (size_t a = 0; a < mesh.atomic().size(); ++a) {
    const double size = mesh.atomic()[a].size;
    for (int k = 0; k < std::abs(exponents_[a]); ++k) {
      if (exponents_[a] > 0) {
        value *= size;
      } else {
        value /= size;
      }
    }
  }
  return value;
}

std::string Scale::Describe(const Mesh& mesh) const {
  std::string above = numerator_ == 1 ? "" : absl::StrCat(numerator_);
  std::string below = denominator_ == 1 ? "" : absl::StrCat(denominator_);
  const auto add = [&](const std::string& name, int exponent) {
    std::string& side = exponent > 0 ? above : below;
    absl::StrAppend(&side, side.empty() ? "" : "*", Power(name, std::abs(exponent)));
  };
  std::array<int8_t, kMaxAtomicAxes> left = exponents_;
  for (Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp, Axis::kEp, Axis::kEtp, Axis::kEdp,
                    Axis::kKv, Axis::kKvCopy}) {
    const Group group = mesh.GroupOf(axis);
    const int exponent = CommonExponent(group, left);
    if (exponent == 0) continue;
    add(group.name, exponent);
    for (int a : group.atomic) left[a] = 0;
  }
  for (size_t a = 0; a < mesh.atomic().size(); ++a) {
    if (left[a] != 0) add(mesh.atomic()[a].name, left[a]);
  }
  if (above.empty()) above = "1";
  return below.empty() ? above : absl::StrCat(above, "/", below);
}

}  // namespace sumonce

#include "capture/diff/figures.h"

#include <bit>
#include <cmath>
#include <limits>

namespace sumonce::diff {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tolerances DefaultsOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {1e-7, 1e-7};
    case DType::kFloat32:
      return {1.3e-6, 1e-5};
    case DType::kFloat16:
      return {1e-3, 1e-5};
    case DType::kBFloat16:
      return {1.6e-2, 1e-5};
    default:
      return {};
  }
}

// The bits of a floating type, as an integer that rises with the value.
template <typename Bits>
int64_t Ordered(Bits bits) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  const int64_t magnitude = static_cast<int64_t>(bits & static_cast<Bits>(~kSign));
  return (bits & kSign) != 0 ? -magnitude : magnitude;
}

uint16_t Float16Bits(double value) {
  if (value == 0) return std::signbit(value) ? 0x8000 : 0;
  const uint16_t sign = value < 0 ? 0x8000 : 0;
  if (std::isinf(value)) return sign | 0x7c00;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [1/2, 1)
  if (exponent < -13)                                               // subnormal, steps of 2^-24
    return sign | static_cast<uint16_t>(std::ldexp(std::fabs(value), 24));
  const auto mantissa = static_cast<uint16_t>(std::ldexp(fraction, 11)) & 0x3ff;
  return sign | static_cast<uint16_t>((exponent + 14) << 10) | static_cast<uint16_t>(mantissa);
}

std::optional<int64_t> OrderedBits(double value, DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return Ordered(std::bit_cast<uint64_t>(value));
    case DType::kFloat32:
      return Ordered(std::bit_cast<uint32_t>(static_cast<float>(value)));
    case DType::kBFloat16:
      return Ordered(BFloat16::FromFloat(static_cast<float>(value)).bits);
    case DType::kFloat16:
      return Ordered(Float16Bits(value));
    default:
      return std::nullopt;
  }
}

// Takes in one pair of entries.
class Sum {
 public:
  Sum(const Tolerances& allowed, std::optional<DType> dtype) : allowed_(allowed), dtype_(dtype) {
    if (dtype_) figures_.ulp_max = 0;
  }

  void Add(int64_t at, double a, double b) {
    ++figures_.count;
    figures_.not_finite_a += !std::isfinite(a);
    figures_.not_finite_b += !std::isfinite(b);
    AddSums(a, b);
    const bool same = a == b || (std::isnan(a) && std::isnan(b));
    figures_.identical = figures_.identical && same;
    if (a == b) return;
    const double difference = std::fabs(a - b);
    if (!(difference <= allowed_.atol + allowed_.rtol * std::fabs(b)) || std::isinf(b))
      ++figures_.mismatched;
    Raise(std::isnan(difference) ? kInfinity : difference, at, figures_.diff_abs_max,
          figures_.diff_abs_at);
    const double relative = difference / std::fabs(b);
    Raise(std::isnan(relative) ? kInfinity : relative, at, figures_.diff_rel_max,
          figures_.diff_rel_at);
    if (!figures_.ulp_max) return;
    const auto ulps = UlpsBetween(a, b, *dtype_);
    figures_.ulp_max = ulps ? std::optional(std::max(*figures_.ulp_max, *ulps)) : std::nullopt;
  }

  const Figures& figures() const { return figures_; }

 private:
  static void Raise(double value, int64_t at, double& greatest, int64_t& where) {
    if (where >= 0 && !(value > greatest)) return;
    greatest = value;
    where = at;
  }

  void AddSums(double a, double b) {
    figures_.aa += a * a;
    figures_.ab += a * b;
    figures_.bb += b * b;
    const double offset = b - a;
    const bool first = figures_.count == 1;
    figures_.offset_min = first ? offset : std::min(figures_.offset_min, offset);
    figures_.offset_max = first ? offset : std::max(figures_.offset_max, offset);
  }

  Tolerances allowed_;
  std::optional<DType> dtype_;
  Figures figures_;
};

}  // namespace

Tolerances DefaultTolerances(DType a, DType b) {
  const Tolerances of_a = DefaultsOf(a), of_b = DefaultsOf(b);
  return {std::max(of_a.rtol, of_b.rtol), std::max(of_a.atol, of_b.atol)};
}

absl::StatusOr<Figures> Compare(const TensorRef& a, const TensorRef& b, const Tolerances& allowed) {
  const bool one_dtype = a.info.dtype == b.info.dtype && UlpsBetween(0, 0, a.info.dtype);
  Sum sum(allowed, one_dtype ? std::optional(a.info.dtype) : std::nullopt);
  SUMONCE_RETURN_IF_ERROR(ForPieces(
      a, b, [&](int64_t first, std::span<const double> of_a, std::span<const double> of_b) {
        for (size_t i = 0; i < of_a.size(); ++i)
          sum.Add(first + static_cast<int64_t>(i), of_a[i], of_b[i]);
      }));
  return sum.figures();
}

std::optional<uint64_t> UlpsBetween(double a, double b, DType dtype) {
  if (std::isnan(a) || std::isnan(b)) return std::nullopt;
  const auto of_a = OrderedBits(a, dtype), of_b = OrderedBits(b, dtype);
  if (!of_a) return std::nullopt;
  // Unsigned: two doubles may be further apart than a signed number reaches.
  return *of_a > *of_b ? static_cast<uint64_t>(*of_a) - static_cast<uint64_t>(*of_b)
                       : static_cast<uint64_t>(*of_b) - static_cast<uint64_t>(*of_a);
}

}  // namespace sumonce::diff

#include "sim/reader/coefficient.h"

#include <cctype>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {
namespace {

constexpr int kMaxExponent = 8;
constexpr size_t kMaxDigits = 9;
constexpr size_t kMaxLength = 64;

std::optional<Axis> AxisNamed(std::string_view name) {
  for (int i = 0; i < kNumAxes; ++i) {
    if (Name(static_cast<Axis>(i)) == name) return static_cast<Axis>(i);
  }
  return std::nullopt;
}

class Reader {
 public:
  Reader(std::string_view text, const Mesh& mesh) : text_(text), mesh_(mesh) {}

  absl::StatusOr<Scale> Read() {
    SUMONCE_ASSIGN_OR_RETURN(Scale product, Factor());
    while (at_ < text_.size()) {
      const char sign = text_[at_++];
      if (sign != '*' && sign != '/') return Unreadable(at_ - 1);
      SUMONCE_ASSIGN_OR_RETURN(const Scale factor, Factor());
      if (sign == '/' && factor.IsZero()) return absl::InvalidArgumentError("divides by zero");
      product = product * (sign == '/' ? factor.Inverse() : factor);
    }
    return product;
  }

 private:
  static bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

  absl::Status Unreadable(size_t at) const {
    return absl::InvalidArgumentError(
        at < text_.size()
            ? absl::StrCat("cannot be read from \"", ToAbsl(text_.substr(at)), "\" on")
            : "ends too early");
  }

  std::string_view Digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsDigit(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  absl::StatusOr<Scale> Factor() {
    if (at_ < text_.size() && IsDigit(text_[at_])) return Number();
    const size_t begin = at_;
    while (at_ < text_.size() && std::islower(static_cast<unsigned char>(text_[at_]))) ++at_;
    const std::optional<Axis> axis = AxisNamed(text_.substr(begin, at_ - begin));
    if (!axis) return Unreadable(begin);
    int exponent = 1;
    if (at_ < text_.size() && text_[at_] == '^') {
      const size_t power = ++at_;
      const std::string digits(Digits());
      if (digits.size() != 1 || digits[0] - '0' > kMaxExponent) return Unreadable(power);
      exponent = digits[0] - '0';
    }
    return Scale::SizeOfGroup(mesh_.GroupOf(*axis), exponent);
  }

  absl::StatusOr<Scale> Number() {
    const size_t begin = at_;
    std::string digits(Digits());
    int64_t denominator = 1;
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      const std::string_view decimals = Digits();
      if (decimals.empty() || decimals.size() > kMaxDigits) return Unreadable(begin);
      digits += decimals;
      for (size_t i = 0; i < decimals.size(); ++i) denominator *= 10;
    }
    if (digits.size() > kMaxDigits) return Unreadable(begin);
    return Scale::Rational(std::stoll(digits), denominator);
  }

  std::string_view text_;
  const Mesh& mesh_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<Scale> ParseCoefficient(std::string_view text, const Mesh& mesh) {
  if (text.size() > kMaxLength) return absl::InvalidArgumentError("is too long");
  return Reader(text, mesh).Read();
}

}  // namespace sumonce

// The figures of torch.testing.assert_close for two tensors, read in pieces: A is the actual, B the
// expected one. And the distance in units of the last place, which no tolerance hides.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/safetensors.h"
#include "base/status.h"

namespace sumonce::diff {

// One tensor of a file.
struct TensorRef {
  const SafetensorsReader* file = nullptr;
  std::string name;
  TensorInfo info;
};

struct Tolerances {
  double rtol = 0;
  double atol = 0;
};
// assert_close's own for a pair of dtypes: the wider of both. Integers: 0.
Tolerances DefaultTolerances(DType a, DType b);

struct Figures {
  int64_t count = 0;
  int64_t mismatched = 0;  // |a - b| > atol + rtol |b|; NaN matches nothing
  bool identical = true;   // the same values everywhere, NaN where the other has it
  double diff_abs_max = 0;
  int64_t diff_abs_at = -1;  // flat index; -1: no difference
  double diff_rel_max = 0;   // of |b|
  int64_t diff_rel_at = -1;
  // Representable values between the two, at most; with one dtype only. None if an entry is NaN.
  std::optional<uint64_t> ulp_max;
  int64_t not_finite_a = 0;
  int64_t not_finite_b = 0;
  // Sums over the entries, for relations (relation.h).
  double aa = 0, ab = 0, bb = 0;
  double offset_min = 0, offset_max = 0;  // of b - a
};

// The shapes have as many elements. InvalidArgument: a file changed while it was read.
absl::StatusOr<Figures> Compare(const TensorRef& a, const TensorRef& b, const Tolerances& allowed);

// Representable values of the dtype between two of its own: 0 for equal ones, 1 for neighbours; -0
// and +0 are one value. None for NaN, and for what is no floating type.
std::optional<uint64_t> UlpsBetween(double a, double b, DType dtype);

// Elements that are held of each tensor at once.
inline constexpr int64_t kPiece = int64_t{1} << 18;

// Calls `visit(first, a, b)` for one piece after the other.
template <typename Visit>
absl::Status ForPieces(const TensorRef& a, const TensorRef& b, Visit&& visit) {
  const int64_t count = a.info.count();
  std::vector<double> values_a(std::min(count, kPiece)), values_b(values_a.size());
  for (int64_t done = 0; done < count; done += kPiece) {
    const size_t size = static_cast<size_t>(std::min(kPiece, count - done));
    const std::span<double> piece_a = std::span(values_a).first(size);
    const std::span<double> piece_b = std::span(values_b).first(size);
    SUMONCE_RETURN_IF_ERROR(a.file->ReadRange(a.name, done, piece_a));
    SUMONCE_RETURN_IF_ERROR(b.file->ReadRange(b.name, done, piece_b));
    visit(done, piece_a, piece_b);
  }
  return absl::OkStatus();
}

}  // namespace sumonce::diff

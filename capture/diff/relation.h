// What one tensor is of the other, when they differ: a multiple, shifted, permuted, transposed,
// zero, a slice. The simplest that explains the difference within the dtype's rounding.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "capture/diff/figures.h"

namespace sumonce::diff {

enum class RelationKind : uint8_t {
  kNone,        // nothing simple
  kEqual,       // the same values
  kZero,        // B is zero, A is not
  kFromZero,    // A is zero, B is not
  kTimes,       // B = n A
  kDividedBy,   // B = A / n
  kScaled,      // B = a A, a no whole number nor its inverse
  kOffset,      // B = A + c
  kShifted,     // slices of A reappear so many places on
  kPermuted,    // the same slices in another order
  kRepacked,    // the same, as another packing of sections
  kTransposed,  // B is A transposed
  kSlice,       // B is a part of A, or A of B
};

struct Relation {
  RelationKind kind = RelationKind::kNone;
  double factor = 1;   // kTimes, kDividedBy: n; kScaled: a; kOffset: c
  double misfit = 0;   // what is left of B, relative to its norm
  std::string text;    // "B is 2 times A", without what is particular to one tensor
  std::string detail;  // "units of 16, 8 and 8 rows"; empty for most
};

// Of two tensors that differ. Reads them up to twice more for each dimension; memory stays bounded.
// InvalidArgument: a file changed while it was read.
absl::StatusOr<Relation> RelationOf(const TensorRef& a, const TensorRef& b, const Figures& figures);
// The same for tensors of different shapes, which have no figures.
absl::StatusOr<Relation> RelationOfShapes(const TensorRef& a, const TensorRef& b);

}  // namespace sumonce::diff

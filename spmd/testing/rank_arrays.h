// For tests: what n ranks hold of a tensor in a given state along one mesh axis, and whether they
// do. This gives the states their meaning in numbers, apart from the code that reasons about them.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "comm/mesh.h"
#include "spmd/state.h"
#include "spmd/tensor.h"

namespace sumonce::testing {

using RankArrays = std::vector<Tensor>;

// n ranks along atomic axis 0.
inline Mesh OneAxisMesh(int n) {
  absl::StatusOr<Mesh> mesh = Mesh::Create({.tp = n});
  SUMONCE_CHECK(mesh.ok() && mesh->atomic().size() == 1 && mesh->atomic()[0].size == n);
  return *std::move(mesh);
}

// Small integers (exact arithmetic) or uniform numbers of a range.
class Numbers {
 public:
  Numbers(std::string_view name, bool integers, double low, double high)
      : stream_(1, name), integers_(integers), low_(low), high_(high) {}

  double Next() {
    if (integers_) return static_cast<double>(stream_.Integer(index_++, -3, 3));
    return low_ + (high_ - low_) * stream_.Uniform(index_++);
  }
  Tensor Fill(const Dims& dims) {
    Tensor tensor(dims);
    for (int64_t i = 0; i < tensor.count(); ++i) tensor.data()[i] = Next();
    return tensor;
  }

 private:
  RandomStream stream_;
  uint64_t index_ = 0;
  bool integers_;
  double low_, high_;
};

inline Tensor Scaled(const Tensor& tensor, double factor) {
  Tensor scaled = tensor.Clone();
  ScaleInto(scaled, factor);
  return scaled;
}

inline Tensor Sum(const RankArrays& arrays) {
  Tensor sum = arrays[0].Clone();
  for (size_t rank = 1; rank < arrays.size(); ++rank) AddInto(sum, arrays[rank]);
  return sum;
}

inline Tensor Maximum(const RankArrays& arrays) {
  Tensor maximum = arrays[0].Clone();
  for (const Tensor& array : arrays) {
    for (int64_t i = 0; i < maximum.count(); ++i) {
      maximum.data()[i] = std::max(maximum.data()[i], array.data()[i]);
    }
  }
  return maximum;
}

// The dimensions that a rank of n has of a tensor; nullopt if they cannot be cut so.
inline std::optional<Dims> LocalDims(const Dims& whole, const AxisState& axis, int n) {
  Dims local = whole;
  if (axis.layout != Layout::kShard) return local;
  const int position = Find(whole, axis.dim);
  if (position < 0 || whole[position].units % n != 0) return std::nullopt;
  local[position].units /= n;
  return local;
}

// Arrays in the state E, S or P of factor * whole. The terms of P are independent random numbers.
inline RankArrays Place(const Tensor& whole, const AxisState& axis, double factor, int n,
                        Numbers& numbers) {
  const Tensor scaled = Scaled(whole, factor);
  RankArrays arrays;
  for (int rank = 0; rank < n; ++rank) {
    if (axis.layout == Layout::kEqual) arrays.push_back(scaled.Clone());
    if (axis.layout == Layout::kShard) arrays.push_back(SliceUnits(scaled, axis.dim, rank, n));
    if (axis.layout == Layout::kPartial) arrays.push_back(numbers.Fill(whole.dims()));
  }
  SUMONCE_CHECK(static_cast<int>(arrays.size()) == n) << "a mixture is no operand";
  if (axis.layout == Layout::kPartial) {
    Tensor rest = Scaled(Sum({arrays.begin(), arrays.end() - 1}), -1);
    AddInto(rest, scaled);
    arrays.back() = rest;
  }
  return arrays;
}

inline double GreatestEntry(const Tensor& tensor) {
  double greatest = 0;
  for (double value : tensor.values()) greatest = std::max(greatest, std::abs(value));
  return greatest;
}

// Equal dimensions, and every entry within tolerance * the greatest entry. NaN is near nothing.
inline bool Near(const Tensor& actual, const Tensor& expected, double tolerance) {
  if (actual.dims() != expected.dims()) return false;
  const double allowed = tolerance * std::max(1.0, GreatestEntry(expected));
  for (int64_t i = 0; i < actual.count(); ++i) {
    if (!(std::abs(actual.data()[i] - expected.data()[i]) <= allowed)) return false;
  }
  return true;
}

inline bool SameDims(const RankArrays& arrays) {
  return std::all_of(arrays.begin(), arrays.end(),
                     [&](const Tensor& array) { return array.dims() == arrays[0].dims(); });
}

// Whether the arrays are in that state of factor * whole.
inline bool Holds(const AxisState& axis, double factor, const RankArrays& arrays,
                  const Tensor& whole, double tolerance) {
  const Tensor expected = Scaled(whole, factor);
  const int n = static_cast<int>(arrays.size());
  if (!SameDims(arrays) || arrays[0].dims() != LocalDims(whole.dims(), axis, n)) return false;
  switch (axis.layout) {
    case Layout::kEqual:
      return std::all_of(arrays.begin(), arrays.end(),
                         [&](const Tensor& array) { return Near(array, expected, tolerance); });
    case Layout::kShard:
      return Near(JoinUnits(arrays, axis.dim), expected, tolerance);
    case Layout::kPartial:
      return Near(Sum(arrays), expected, tolerance);
    case Layout::kMaxima:
      return Near(Maximum(arrays), expected, tolerance);
    case Layout::kMixed:
      break;  // its dimension is not kept: the table's test checks it
  }
  return false;
}

// The factor by which `actual` is a multiple of `whole`; nullopt if it is none.
inline std::optional<double> Multiple(const Tensor& actual, const Tensor& whole, double tolerance) {
  if (actual.dims() != whole.dims() || whole.count() == 0) return std::nullopt;
  const auto larger = [](double a, double b) { return std::abs(a) < std::abs(b); };
  const int64_t at =
      std::max_element(whole.data(), whole.data() + whole.count(), larger) - whole.data();
  const double factor = actual.data()[at] / whole.data()[at];
  if (!std::isfinite(factor) || factor == 0) return std::nullopt;
  if (!Near(actual, Scaled(whole, factor), std::max(tolerance, 1e-12))) return std::nullopt;
  return factor;
}

// Whether the arrays are in any of the states E, S, P of any multiple of whole.
inline bool HoldsAnyState(const RankArrays& arrays, const Tensor& whole, double tolerance) {
  if (!SameDims(arrays)) return false;
  const auto is_multiple = [&](const Tensor& tensor) {
    return Multiple(tensor, whole, tolerance).has_value();
  };
  const bool equal = std::all_of(arrays.begin(), arrays.end(), [&](const Tensor& array) {
    return Near(array, arrays[0], std::max(tolerance, 1e-12));
  });
  if (equal && is_multiple(arrays[0])) return true;
  if (is_multiple(Sum(arrays))) return true;
  return std::any_of(whole.dims().begin(), whole.dims().end(), [&](const DimExtent& dim) {
    return Find(arrays[0].dims(), dim.dim) >= 0 && is_multiple(JoinUnits(arrays, dim.dim));
  });
}

}  // namespace sumonce::testing

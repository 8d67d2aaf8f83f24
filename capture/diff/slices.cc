#include "capture/diff/slices.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <span>

namespace sumonce::diff {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014), as a running hash.
uint64_t Mixed(uint64_t hash, uint64_t bits) {
  uint64_t z = (hash ^ bits) + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Stretches in the order of one tensor, with their places in the other's order.
struct Order {
  std::vector<int64_t> rows;
  std::vector<int64_t> place;
};

Order OrderOf(const std::vector<Run>& runs, int64_t Run::*here, int64_t Run::*there) {
  std::vector<size_t> by_here(runs.size()), by_there(runs.size());
  std::iota(by_here.begin(), by_here.end(), 0);
  by_there = by_here;
  const auto sort = [&](std::vector<size_t>& order, int64_t Run::*key) {
    std::sort(order.begin(), order.end(),
              [&](size_t x, size_t y) { return runs[x].*key < runs[y].*key; });
  };
  sort(by_here, here);
  sort(by_there, there);
  std::vector<int64_t> rank(runs.size());
  for (size_t i = 0; i < by_there.size(); ++i) rank[by_there[i]] = static_cast<int64_t>(i);
  Order order;
  for (const size_t run : by_here) {
    order.rows.push_back(runs[run].count);
    order.place.push_back(rank[run]);
  }
  return order;
}

// The rows of each part, if `units` units of `parts` parts lie unit behind unit here and part
// behind part there, all units alike; else nothing.
std::vector<int64_t> PartsOf(const Order& order, int64_t units, int64_t parts) {
  for (int64_t u = 0; u < units; ++u) {
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t run = u * parts + p;
      if (order.place[run] != p * units + u || order.rows[run] != order.rows[p]) return {};
    }
  }
  return {order.rows.begin(), order.rows.begin() + parts};
}

}  // namespace

absl::StatusOr<std::vector<uint64_t>> Fingerprints(const TensorRef& tensor, size_t dim) {
  const std::vector<int64_t>& shape = tensor.info.shape;
  std::vector<uint64_t> prints(shape[dim], 0);
  int64_t inner = 1;
  for (size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const int64_t count = tensor.info.count();
  std::vector<double> values(std::min(count, kPiece));
  for (int64_t done = 0; done < count; done += kPiece) {
    const std::span<double> piece =
        std::span(values).first(static_cast<size_t>(std::min(kPiece, count - done)));
    SUMONCE_RETURN_IF_ERROR(tensor.file->ReadRange(tensor.name, done, piece));
    for (size_t i = 0; i < piece.size(); ++i) {
      const int64_t slice = (done + static_cast<int64_t>(i)) / inner % shape[dim];
      prints[slice] = Mixed(prints[slice], std::bit_cast<uint64_t>(piece[i]));
    }
  }
  return prints;
}

std::optional<std::vector<Run>> PermutationOf(const std::vector<uint64_t>& a,
                                              const std::vector<uint64_t>& b) {
  if (a.size() != b.size()) return std::nullopt;
  std::map<uint64_t, std::vector<int64_t>> places;  // in A, last first
  for (int64_t i = static_cast<int64_t>(a.size()) - 1; i >= 0; --i) places[a[i]].push_back(i);
  std::vector<Run> runs;
  for (int64_t i = 0; i < static_cast<int64_t>(b.size()); ++i) {
    auto found = places.find(b[i]);
    if (found == places.end() || found->second.empty()) return std::nullopt;
    const int64_t from = found->second.back();
    found->second.pop_back();
    if (!runs.empty() && runs.back().from_a + runs.back().count == from) {
      ++runs.back().count;
    } else {
      runs.push_back({from, i, 1});
    }
  }
  return runs;
}

std::optional<Shift> ShiftOf(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  std::map<uint64_t, std::vector<int64_t>> places;
  for (size_t i = 0; i < a.size(); ++i) places[a[i]].push_back(static_cast<int64_t>(i));
  std::map<int64_t, int64_t> offsets;
  int64_t distinct = 0;
  for (const auto& [print, where] : places) distinct += where.size() == 1;
  for (size_t i = 0; i < b.size(); ++i) {
    const auto found = places.find(b[i]);
    if (found == places.end() || found->second.size() != 1) continue;
    ++offsets[static_cast<int64_t>(i) - found->second[0]];
  }
  Shift best;
  for (const auto& [offset, matched] : offsets) {
    if (matched > best.matched) best = {offset, matched};
  }
  if (best.offset == 0 || best.matched < 2 || 2 * best.matched <= distinct) return std::nullopt;
  return best;
}

std::optional<Repacking> RepackingOf(const std::vector<Run>& runs) {
  const Order in_a = OrderOf(runs, &Run::from_a, &Run::from_b);
  const Order in_b = OrderOf(runs, &Run::from_b, &Run::from_a);
  const int64_t count = static_cast<int64_t>(runs.size());
  for (int64_t parts = 2; parts <= count / 2; ++parts) {
    if (count % parts != 0) continue;
    for (const bool units_in_a : {true, false}) {
      std::vector<int64_t> rows = PartsOf(units_in_a ? in_a : in_b, count / parts, parts);
      if (!rows.empty()) return Repacking{count / parts, parts, std::move(rows), units_in_a};
    }
  }
  return std::nullopt;
}

}  // namespace sumonce::diff

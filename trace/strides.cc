#include "trace/strides.h"

#include <algorithm>

#include "base/status.h"

namespace sumonce::trace {
namespace {

// One past the farthest element.
int64_t End(const Geometry& geometry) {
  int64_t last = geometry.offset;
  for (size_t d = 0; d < geometry.shape.size(); ++d)
    last += (geometry.shape[d] - 1) * geometry.strides[d];
  return last + 1;
}

// Of two tensors of few dimensions: no allocation where every read and write comes by.
using DigitList = absl::InlinedVector<int64_t, 12>;

// One division where both quotient and rest are wanted; of 32 bits where that does: they are what
// comparing two tensors costs.
struct Quotient {
  int64_t whole = 0, rest = 0;
};
Quotient Divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) {
    const auto small_a = static_cast<uint32_t>(a), small_b = static_cast<uint32_t>(b);
    return {small_a / small_b, small_a % small_b};
  }
  return {a / b, a % b};
}

// The strides of both that separate elements, each once, descending, and 1: the digits of an
// address.
DigitList Digits(const Geometry& a, const Geometry& b) {
  DigitList digits = {1};
  for (const Geometry* geometry : {&a, &b}) {
    for (size_t d = 0; d < geometry->shape.size(); ++d) {
      if (geometry->shape[d] > 1 && geometry->strides[d] > 0)
        digits.push_back(geometry->strides[d]);
    }
  }
  std::sort(digits.begin(), digits.end(), std::greater<>());
  digits.erase(std::unique(digits.begin(), digits.end()), digits.end());
  return digits;
}

struct Range {
  int64_t begin = 0, count = 1;
};
using Box = absl::InlinedVector<Range, 12>;

// The tensor as a box in the digits: a range in each; `radix`: how many of a digit make one of the
// next higher. False: it is none.
bool FindBox(const Geometry& geometry, const DigitList& digits, const DigitList& radix, Box& box) {
  box.resize(digits.size());
  int64_t rest = geometry.offset;
  for (size_t q = 0; q < digits.size(); ++q) {
    const Quotient quotient = Divide(rest, digits[q]);
    box[q] = {.begin = quotient.whole};
    rest = quotient.rest;
  }
  for (size_t d = 0; d < geometry.shape.size(); ++d) {
    if (geometry.shape[d] <= 1 || geometry.strides[d] == 0) continue;
    const size_t q = std::find(digits.begin(), digits.end(), geometry.strides[d]) - digits.begin();
    if (box[q].count != 1) return false;
    box[q].count = geometry.shape[d];
  }
  // What runs over its digit's end carries on in the next higher one, if it fills its own.
  for (size_t q = digits.size(); q-- > 1;) {
    if (box[q].begin + box[q].count <= radix[q]) continue;
    const Quotient carried = Divide(box[q].count, radix[q]);
    if (box[q].begin != 0 || carried.rest != 0 || box[q - 1].count != 1) return false;
    box[q - 1].count = carried.whole;
    box[q].count = radix[q];
  }
  return true;
}

bool Dense(const Geometry& geometry) { return End(geometry) - geometry.offset == Count(geometry); }

// `address` relative to the block: what is left after whole steps of the dimensions around it.
int64_t InsideBlock(const Geometry& from, int cut_dim, int64_t top, int64_t address) {
  absl::InlinedVector<int64_t, 5> around = {top};
  for (size_t d = 0; d < from.shape.size(); ++d) {
    if (static_cast<int>(d) != cut_dim && from.shape[d] > 1 && from.strides[d] > top)
      around.push_back(from.strides[d]);
  }
  std::sort(around.begin(), around.end(), std::greater<>());
  for (const int64_t stride : around) address %= stride;
  return address;
}

}  // namespace

OverlapResult OverlapOf(const Geometry& part, const Geometry& whole) {
  const int64_t count = Count(part);
  if (count == 0 || Count(whole) == 0) return {};
  if (part == whole) return {Overlap::kInside, count};
  if (End(part) <= whole.offset || End(whole) <= part.offset) return {};
  if (Dense(whole) && whole.offset <= part.offset && End(part) <= End(whole))
    return {Overlap::kInside, count};
  const DigitList digits = Digits(part, whole);
  DigitList radix(digits.size());
  for (size_t q = 1; q < digits.size(); ++q) {
    const Quotient quotient = Divide(digits[q - 1], digits[q]);
    if (quotient.rest != 0) return {Overlap::kUnknown, 0};
    radix[q] = quotient.whole;
  }
  Box part_box, whole_box;
  if (!FindBox(part, digits, radix, part_box) || !FindBox(whole, digits, radix, whole_box))
    return {Overlap::kUnknown, 0};
  int64_t shared = 1;
  bool inside = true;
  for (size_t q = 0; q < digits.size(); ++q) {
    const Range& a = part_box[q];
    const Range& b = whole_box[q];
    const int64_t begin = std::max(a.begin, b.begin);
    const int64_t end = std::min(a.begin + a.count, b.begin + b.count);
    if (begin >= end) return {};
    shared *= end - begin;
    inside &= end - begin == a.count;
  }
  return {inside ? Overlap::kInside : Overlap::kSome, shared};
}

std::optional<CutView> ViewOf(const Geometry& from, const Cut& cut, const Geometry& to) {
  const int64_t low = from.strides[cut.dim];
  const int64_t top = low * cut.block;
  if (low <= 0 || to.offset < from.offset) return std::nullopt;
  // The outermost dimension that runs along the block, beyond a single entry of `from`.
  int hit = -1;
  for (size_t d = 0; d < to.shape.size(); ++d) {
    const int64_t stride = to.strides[d];
    const bool along = to.shape[d] > 1 && stride > 0 && stride < top && stride * to.shape[d] > low;
    if (along && (hit < 0 || stride > to.strides[hit])) hit = static_cast<int>(d);
  }
  if (hit < 0) return std::nullopt;
  const int64_t step = to.strides[hit];
  const int64_t length = step * to.shape[hit];
  int64_t lower = 0;  // how far the dimensions below reach
  for (size_t d = 0; d < to.shape.size(); ++d) {
    if (static_cast<int>(d) == hit || to.shape[d] <= 1 || to.strides[d] == 0) continue;
    if (to.strides[d] < step) {
      lower += (to.shape[d] - 1) * to.strides[d];
    } else if (InsideBlock(from, cut.dim, top, to.strides[d]) != 0) {
      return std::nullopt;
    }
  }
  const int64_t phase = InsideBlock(from, cut.dim, top, to.offset - from.offset);
  if (top % step != 0 || phase % step + lower >= step) return std::nullopt;
  CutView view{.cut = {.dim = hit}, .of = top / step};
  if (length % top == 0) {
    if (phase >= step) return std::nullopt;
    view.cut.outer = length / top;
    view.cut.block = view.end = view.of;
    return view;
  }
  view.begin = phase / step;
  view.end = view.begin + to.shape[hit];
  if (view.end > view.of) return std::nullopt;
  view.cut.block = to.shape[hit];
  return view;
}

Geometry OrderOf(const Geometry& geometry) {
  Geometry order;
  order.offset = geometry.offset;
  for (size_t d = 0; d < geometry.shape.size(); ++d) {
    const int64_t extent = geometry.shape[d], stride = geometry.strides[d];
    if (extent == 1) continue;
    if (!order.shape.empty() && order.strides.back() == extent * stride && stride > 0) {
      order.shape.back() *= extent;
      order.strides.back() = stride;
    } else {
      order.shape.push_back(extent);
      order.strides.push_back(stride);
    }
  }
  return order;
}

std::vector<int64_t> PlaceIn(const Geometry& from, const Geometry& to) {
  const size_t n = from.shape.size();
  absl::InlinedVector<size_t, 5> order;
  for (size_t d = 0; d < n; ++d) {
    if (from.shape[d] > 1 && from.strides[d] > 0) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return from.strides[a] > from.strides[b]; });
  std::vector<int64_t> places;
  const auto add = [&](int64_t address) {
    const size_t base = places.size();
    places.resize(base + n + 1);
    for (const size_t d : order) {
      places[base + d] = address / from.strides[d];
      address %= from.strides[d];
    }
    places[base + n] = address;
  };
  add(to.offset - from.offset);
  for (size_t d = 0; d < to.shape.size(); ++d) add(to.shape[d] > 1 ? to.strides[d] : 0);
  return places;
}

}  // namespace sumonce::trace

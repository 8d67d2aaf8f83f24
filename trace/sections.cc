#include "trace/sections.h"

#include <numeric>

#include "base/status.h"

namespace sumonce::trace {
namespace {

constexpr Fraction kZero = {0, 1};
constexpr Fraction kOne = {1, 1};
constexpr size_t kMaxSegments = 256;  // of a strip; more are refused

// Where the segments of a strip begin, as fractions of it, and 1.
std::vector<Fraction> Bounds(const Strip& strip) {
  std::vector<Fraction> bounds = {kZero};
  for (const Segment& segment : strip) bounds.push_back(bounds.back() + segment.share);
  return bounds;
}

// A fraction of a segment as a position of its root.
Fraction PositionIn(const Segment& segment, const Fraction& at) {
  return segment.begin + (segment.end - segment.begin) * at;
}

}  // namespace

Fraction Fraction::Of(int64_t over, int64_t under) {
  const int64_t divisor = std::gcd(over, under);
  return {over / divisor, under / divisor};
}
Fraction Fraction::operator+(const Fraction& other) const {
  return Of(over * other.under + other.over * under, under * other.under);
}
Fraction Fraction::operator-(const Fraction& other) const {
  return Of(over * other.under - other.over * under, under * other.under);
}
Fraction Fraction::operator*(const Fraction& other) const {
  return Of(over * other.over, under * other.under);
}
Fraction Fraction::operator/(const Fraction& other) const {
  SUMONCE_CHECK(other.over > 0);
  return Of(over * other.under, under * other.over);
}
std::strong_ordering Fraction::operator<=>(const Fraction& other) const {
  return static_cast<__int128>(over) * other.under <=> static_cast<__int128>(other.over) * under;
}

Strip Sections::NewStrip() {
  const int root = static_cast<int>(parents_.size());
  parents_.push_back(root);
  cuts_.emplace_back();
  joined_.emplace_back();
  links_.emplace_back();
  return {Segment{.root = root}};
}

int Sections::Find(int root) const {
  while (parents_[root] != root) {
    parents_[root] = parents_[parents_[root]];
    root = parents_[root];
  }
  return root;
}

bool Sections::Join(const Strip& strip) {
  const int root = Find(strip[0].root);
  for (size_t i = 1; i < strip.size(); ++i) {
    if (Find(strip[i].root) != root || !(strip[i].begin == strip[i - 1].end)) return false;
  }
  const Span span = {strip.front().begin, strip.back().end};
  for (const Fraction& cut : cuts_[root]) {
    if (span.begin < cut && cut < span.end) return false;
  }
  for (const Span& known : joined_[root]) {
    if (known.begin <= span.begin && span.end <= known.end) return true;
  }
  joined_[root].push_back(span);
  return true;
}

bool Sections::Cut(int root, const Fraction& at) {
  root = Find(root);
  if (at <= kZero || at >= kOne || !cuts_[root].insert(at).second) return true;
  for (const Span& span : joined_[root]) {
    if (span.begin < at && at < span.end) return false;
  }
  const std::vector<Link> links = links_[root];
  for (const Link& link : links) {
    if (!Propagate(link, at)) return false;
  }
  return true;
}

bool Sections::Propagate(const Link& link, const Fraction& at) {
  if (at < link.here.begin || link.here.end < at) return true;
  const Fraction inside = (at - link.here.begin) / (link.here.end - link.here.begin);
  return Cut(link.other, link.there.begin + (link.there.end - link.there.begin) * inside);
}

bool Sections::Part(const Strip& strip, const Fraction& begin, const Fraction& end, Strip& part) {
  const std::vector<Fraction> bounds = Bounds(strip);
  part.clear();
  bool sound = true;
  for (size_t i = 0; i < strip.size(); ++i) {
    const Segment& segment = strip[i];
    const Fraction from = std::max(begin, bounds[i]);
    const Fraction to = std::min(end, bounds[i + 1]);
    if (from >= to) continue;
    Segment piece = segment;
    piece.begin = PositionIn(segment, (from - bounds[i]) / segment.share);
    piece.end = PositionIn(segment, (to - bounds[i]) / segment.share);
    piece.share = (to - from) / (end - begin);
    sound = Cut(segment.root, piece.begin) && Cut(segment.root, piece.end) && sound;
    part.push_back(piece);
  }
  return sound && !part.empty();
}

bool Sections::Unite(int a, int b) {
  a = Find(a);
  b = Find(b);
  if (a == b) return true;
  parents_[b] = a;
  bool sound = true;
  for (const Span& span : joined_[b]) joined_[a].push_back(span);
  for (const Span& span : joined_[a]) {
    for (const auto* cuts : {&cuts_[a], &cuts_[b]}) {
      const auto inside = cuts->upper_bound(span.begin);
      sound = sound && (inside == cuts->end() || *inside >= span.end);
    }
  }
  const std::vector<Link> moved = std::move(links_[b]);
  const std::set<Fraction> of_a = cuts_[a], of_b = std::move(cuts_[b]);
  links_[b].clear();
  cuts_[b].clear();
  // What one of the two knew, the other's links have not heard of.
  for (const Link& link : moved) {
    for (const Fraction& at : of_a) sound = Propagate(link, at) && sound;
  }
  for (const Fraction& at : of_b) sound = Cut(a, at) && sound;
  for (const Link& link : moved) links_[Find(a)].push_back(link);
  return sound;
}

bool Sections::Tie(const Segment& a, const Segment& b) {
  const int root_a = Find(a.root), root_b = Find(b.root);
  const Span span_a = {a.begin, a.end}, span_b = {b.begin, b.end};
  const bool same_place = a.begin == b.begin && a.end == b.end;
  if (root_a == root_b && same_place) return true;
  if (same_place && a.begin == kZero && a.end == kOne) return Unite(root_a, root_b);
  for (const Link& known : links_[root_a]) {
    if (Find(known.other) == root_b && known.here.begin == a.begin && known.here.end == a.end &&
        known.there.begin == b.begin && known.there.end == b.end)
      return true;
  }
  const Link forth = {root_a, span_a, span_b, root_b}, back = {root_b, span_b, span_a, root_a};
  links_[root_a].push_back(forth);
  links_[root_b].push_back(back);
  bool sound = true;
  const std::set<Fraction> of_a = cuts_[root_a], of_b = cuts_[root_b];
  for (const Fraction& at : of_a) sound = Propagate(forth, at) && sound;
  for (const Fraction& at : of_b) sound = Propagate(back, at) && sound;
  return sound;
}

bool Sections::Align(const Strip& a, const Strip& b) {
  const std::vector<Fraction> bounds_a = Bounds(a), bounds_b = Bounds(b);
  size_t i = 0, k = 0;
  Fraction from = kZero;
  bool sound = true;
  while (i < a.size() && k < b.size()) {
    const Fraction to = std::min(bounds_a[i + 1], bounds_b[k + 1]);
    const auto piece = [&](const Segment& segment, const Fraction& start) {
      Segment part = segment;
      part.begin = PositionIn(segment, (from - start) / segment.share);
      part.end = PositionIn(segment, (to - start) / segment.share);
      sound = Cut(segment.root, part.begin) && Cut(segment.root, part.end) && sound;
      return part;
    };
    const Segment part_a = a.size() == b.size() && a.size() == 1 ? a[i] : piece(a[i], bounds_a[i]);
    const Segment part_b = a.size() == b.size() && a.size() == 1 ? b[k] : piece(b[k], bounds_b[k]);
    sound = Tie(part_a, part_b) && sound;
    if (bounds_a[i + 1] <= to) ++i;
    if (bounds_b[k + 1] <= to) ++k;
    from = to;
  }
  return sound;
}

Strip Sections::Concatenate(std::span<const Strip> strips, std::span<const int64_t> lengths) const {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  Strip joined;
  for (size_t i = 0; i < strips.size(); ++i) {
    for (Segment segment : strips[i]) {
      segment.share = segment.share * Fraction::Of(lengths[i], total);
      joined.push_back(segment);
    }
  }
  if (joined.size() > kMaxSegments) joined.clear();
  return joined;
}

int Sections::CountOf(const Strip& strip) const {
  int count = 0;
  for (const Segment& segment : strip) {
    ++count;
    for (const Fraction& cut : cuts_[Find(segment.root)])
      count += segment.begin < cut && cut < segment.end;
  }
  return count;
}

}  // namespace sumonce::trace

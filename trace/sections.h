// In which order the entries of a sharded dimension stand. A rank that cuts its block apart (the
// gate and up halves of a SwiGLU) computes what a reference with permuted rows computes, and that
// is right as long as nothing else takes the blocks for consecutive rows of the whole: the two
// uses, *cut inside* and *joined across ranks*, exclude each other on the same entries
// (docs/TRACE.md "Sections").
//
// Dimensions that have to stand in the same order share a root. Positions are fractions of a rank's
// block, so that a reshape, which changes the unit, changes nothing here. For one thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace sumonce::trace {

struct Fraction {
  int64_t over = 0;
  int64_t under = 1;
  static Fraction Of(int64_t over, int64_t under);  // reduced; under > 0
  Fraction operator+(const Fraction& other) const;
  Fraction operator-(const Fraction& other) const;
  Fraction operator*(const Fraction& other) const;
  Fraction operator/(const Fraction& other) const;  // other > 0
  bool operator==(const Fraction&) const = default;
  std::strong_ordering operator<=>(const Fraction& other) const;
};

// Consecutive entries of a root; `share` of the strip that it is part of.
struct Segment {
  int root = 0;
  Fraction begin = {0, 1}, end = {1, 1};
  Fraction share = {1, 1};
};
// A rank's block, as the segments it is put together from.
using Strip = absl::InlinedVector<Segment, 1>;

class Sections {
 public:
  Strip NewStrip();

  // Each of these is false, and the entries' order is then known to be contradictory, when a cut
  // and a join meet.
  bool Join(const Strip& strip);  // the ranks' blocks are consecutive entries of the whole
  // The entries from begin to end, fractions of the strip: `part`.
  bool Part(const Strip& strip, const Fraction& begin, const Fraction& end, Strip& part);
  bool Align(const Strip& a, const Strip& b);  // the two stand in the same order

  // One after the other; `lengths` in any common unit. Empty: of more segments than are followed.
  Strip Concatenate(std::span<const Strip> strips, std::span<const int64_t> lengths) const;

  // In how many sections this strip is cut, 1 if it is not.
  int CountOf(const Strip& strip) const;

 private:
  struct Span {
    Fraction begin, end;
  };
  struct Link {
    int root;
    Span here, there;
    int other;
  };
  int Find(int root) const;
  bool Cut(int root, const Fraction& at);
  bool Unite(int a, int b);
  bool Tie(const Segment& a, const Segment& b);
  bool Propagate(const Link& link, const Fraction& at);

  mutable std::vector<int> parents_;
  std::vector<std::set<Fraction>> cuts_;   // by root, inside the block
  std::vector<std::vector<Span>> joined_;  // by root
  std::vector<std::vector<Link>> links_;   // by root
};

}  // namespace sumonce::trace

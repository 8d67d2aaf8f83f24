#include "capture/audit/cut_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace sumonce::capture {
namespace {

// The whole with each element's own number, cut by hand: sections along `dim`, each in equal parts.
std::vector<int64_t> CutByHand(const std::vector<int64_t>& whole, int dim,
                               const std::vector<int64_t>& sections, int parts, int part) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < static_cast<int>(whole.size()); ++i) {
    if (i < dim) outer *= whole[i];
    if (i > dim) inner *= whole[i];
  }
  std::vector<int64_t> shard;
  for (int64_t o = 0; o < outer; ++o) {
    int64_t start = 0;
    for (const int64_t section : sections) {
      for (int64_t i = 0; i < section / parts; ++i) {
        for (int64_t j = 0; j < inner; ++j)
          shard.push_back((o * whole[dim] + start + part * (section / parts) + i) * inner + j);
      }
      start += section;
    }
  }
  return shard;
}

struct Case {
  std::vector<int64_t> whole;
  int dim;
  std::vector<int64_t> sections;
  int parts;
};

// Whatever the pieces in which the whole is read, every shard gets its own elements, once.
TEST(CutMap, PiecesOfTheWholeAreThoseOfTheShards) {
  const Case kCases[] = {{{12}, 0, {12}, 3},         {{8, 3}, 0, {8}, 2},
                         {{3, 8}, 1, {8}, 4},        {{12, 5}, 0, {4, 2, 6}, 2},
                         {{2, 12, 3}, 1, {6, 6}, 3}, {{112, 4}, 0, {16, 16, 32, 32, 8, 8}, 2},
                         {{2, 3, 4}, 2, {2, 2}, 1}};
  for (const Case& one : kCases) {
    std::vector<int64_t> local = one.whole;
    local[one.dim] /= one.parts;
    const CutMap map =
        CutMap::Create(local, {.dim = one.dim, .sections = one.sections}, one.parts).value();
    EXPECT_EQ(map.whole_shape(local), one.whole);
    const int64_t all = map.whole_count();
    for (int part = 0; part < one.parts; ++part) {
      const std::vector<int64_t> expected =
          CutByHand(one.whole, one.dim, one.sections, one.parts, part);
      for (const int64_t piece : {int64_t{1}, int64_t{5}, int64_t{7}, all}) {
        std::vector<int64_t> shard(expected.size(), -1);
        int64_t next = 0;  // ranges follow one another
        for (int64_t begin = 0; begin < all; begin += piece) {
          const int64_t end = std::min(begin + piece, all);
          const CutMap::Range range = map.InWhole(part, begin, end);
          if (range.count > 0) {
            EXPECT_EQ(range.begin, next);
            next += range.count;
          }
          map.ForEachRun(part, begin, end, [&](int64_t in_whole, int64_t in_shard, int64_t count) {
            for (int64_t i = 0; i < count; ++i) shard[in_shard + i] = in_whole + i;
          });
        }
        EXPECT_EQ(shard, expected);
      }
    }
  }
}

TEST(CutMap, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(CutMap::Create({4}, {.dim = 1}, 2).ok());
  EXPECT_FALSE(CutMap::Create({4}, {.dim = 0, .sections = {4, 2}}, 2).ok());
  EXPECT_FALSE(CutMap::Create({4}, {.dim = 0, .sections = {5, 3}}, 2).ok());
}

}  // namespace
}  // namespace sumonce::capture

#include "trace/strides.h"

#include "gtest/gtest.h"

namespace sumonce::trace {
namespace {

const Geometry kMatrix = {.offset = 0, .shape = {4, 6}, .strides = {6, 1}};

TEST(Overlap, OfPartsOfAMatrix) {
  const Geometry left = {.offset = 0, .shape = {4, 3}, .strides = {6, 1}};
  const Geometry right = {.offset = 3, .shape = {4, 3}, .strides = {6, 1}};
  const Geometry middle = {.offset = 2, .shape = {4, 2}, .strides = {6, 1}};
  EXPECT_EQ(OverlapOf(left, kMatrix).overlap, Overlap::kInside);
  // Their spans of memory meet, their elements do not.
  EXPECT_EQ(OverlapOf(left, right).overlap, Overlap::kNone);
  EXPECT_EQ(OverlapOf(kMatrix, left).overlap, Overlap::kSome);
  EXPECT_EQ(OverlapOf(kMatrix, left).shared, 12);
  EXPECT_EQ(OverlapOf(middle, left).shared, 4);
  const Geometry row = {.offset = 6, .shape = {6}, .strides = {1}};
  EXPECT_EQ(OverlapOf(row, left).shared, 3);
}

TEST(Overlap, OffTheGridIsUnknown) {
  const Geometry odd = {.offset = 0, .shape = {4, 2}, .strides = {5, 1}};
  const Geometry even = {.offset = 1, .shape = {4, 2}, .strides = {6, 1}};
  EXPECT_EQ(OverlapOf(odd, even).overlap, Overlap::kUnknown);
}

TEST(View, ARowShardThroughMergesAndSplits) {
  // [rows 4 of the rank, 6] as [24], [2, 2, 6] and transposed.
  const Cut rows = {.dim = 0, .outer = 1, .block = 4};
  const auto flat = ViewOf(kMatrix, rows, {.offset = 0, .shape = {24}, .strides = {1}});
  ASSERT_TRUE(flat);
  EXPECT_EQ(flat->cut, (Cut{.dim = 0, .outer = 1, .block = 24}));
  const auto swapped = ViewOf(kMatrix, rows, {.offset = 0, .shape = {6, 4}, .strides = {1, 6}});
  ASSERT_TRUE(swapped);
  EXPECT_EQ(swapped->cut, (Cut{.dim = 1, .outer = 1, .block = 4}));
}

TEST(View, AColumnShardMergedWithRowsRepeats) {
  const Cut columns = {.dim = 1, .outer = 1, .block = 6};
  const auto flat = ViewOf(kMatrix, columns, {.offset = 0, .shape = {24}, .strides = {1}});
  ASSERT_TRUE(flat);
  EXPECT_EQ(flat->cut, (Cut{.dim = 0, .outer = 4, .block = 6}));
  // From the middle of one block to the middle of another: no shard.
  EXPECT_FALSE(ViewOf({.offset = 0, .shape = {24}, .strides = {1}},
                      {.dim = 0, .outer = 4, .block = 6},
                      {.offset = 3, .shape = {12}, .strides = {1}}));
}

TEST(View, APartOfEachBlock) {
  const Cut columns = {.dim = 1, .outer = 1, .block = 6};
  const auto part = ViewOf(kMatrix, columns, {.offset = 3, .shape = {4, 3}, .strides = {6, 1}});
  ASSERT_TRUE(part);
  EXPECT_EQ(part->begin, 3);
  EXPECT_EQ(part->end, 6);
  EXPECT_EQ(part->of, 6);
  // One entry of it is no shard.
  EXPECT_FALSE(ViewOf(kMatrix, columns, {.offset = 3, .shape = {4}, .strides = {6}}));
}

}  // namespace
}  // namespace sumonce::trace

#include "trace/sections.h"

#include "gtest/gtest.h"

namespace sumonce::trace {
namespace {

constexpr Fraction kHalf = {1, 2};

TEST(Sections, ACutDimensionCannotBeJoined) {
  Sections sections;
  const Strip rows = sections.NewStrip();
  Strip half;
  EXPECT_TRUE(sections.Part(rows, {0, 1}, kHalf, half));
  EXPECT_FALSE(sections.Join(rows));
  EXPECT_TRUE(sections.Join(half));
  EXPECT_EQ(sections.CountOf(rows), 2);
}

TEST(Sections, AJoinedDimensionCannotBeCut) {
  Sections sections;
  const Strip rows = sections.NewStrip();
  Strip half;
  EXPECT_TRUE(sections.Join(rows));
  EXPECT_FALSE(sections.Part(rows, {0, 1}, kHalf, half));
}

// What stands in one order with a cut dimension is cut where that one is, also later.
TEST(Sections, WhatIsAlignedSharesCuts) {
  Sections sections;
  const Strip weight = sections.NewStrip(), values = sections.NewStrip();
  Strip half;
  EXPECT_TRUE(sections.Align(weight, values));
  EXPECT_TRUE(sections.Part(weight, {0, 1}, kHalf, half));
  EXPECT_FALSE(sections.Join(values));
  // A part of another one: the cut reaches it through the tie, at its own place.
  const Strip whole = sections.NewStrip();
  Strip first;
  EXPECT_TRUE(sections.Part(whole, {0, 1}, kHalf, first));
  EXPECT_TRUE(sections.Align(first, values));
  EXPECT_EQ(sections.CountOf(whole), 3);
}

TEST(Sections, TwoOrdersOfOneDimensionMeetInAContradiction) {
  Sections sections;
  const Strip gathered = sections.NewStrip(), cut = sections.NewStrip();
  Strip half;
  EXPECT_TRUE(sections.Join(gathered));
  EXPECT_TRUE(sections.Part(cut, {0, 1}, kHalf, half));
  EXPECT_FALSE(sections.Align(gathered, cut));
}

// Overlapping parts: neither is consecutive any more.
TEST(Sections, ACutThroughAPartCutsIt) {
  Sections sections;
  const Strip rows = sections.NewStrip();
  Strip half, middle;
  EXPECT_TRUE(sections.Part(rows, {0, 1}, kHalf, half));
  EXPECT_TRUE(sections.Part(rows, {1, 4}, {3, 4}, middle));
  EXPECT_FALSE(sections.Join(half));
}

TEST(Sections, JoinedPartsAreSectionsOfTheirOwn) {
  Sections sections;
  const Strip a = sections.NewStrip(), b = sections.NewStrip();
  const Strip both = sections.Concatenate(std::vector{a, b}, std::vector<int64_t>{3, 1});
  EXPECT_EQ(sections.CountOf(both), 2);
  EXPECT_FALSE(sections.Join(both));
  Strip part;
  EXPECT_TRUE(sections.Part(both, {3, 4}, {1, 1}, part));
  EXPECT_TRUE(sections.Join(part));
}

}  // namespace
}  // namespace sumonce::trace

// The bound is derived, so it must hold for the worst order of the worst numbers, and be hardly
// larger than they need.
#include "verify/tolerance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "spmd/ops/linear.h"

namespace sumonce {
namespace {

constexpr double kUnit = 0x1p-53;

Mesh OneRank() { return *Mesh::Create({}); }

Tensor Vector(Dim dim, const std::vector<double>& values) {
  return Tensor({Plain(dim, static_cast<int64_t>(values.size()))}, values);
}

// y = x W of one row, W of ones: the sum of x, `terms` of them; then optionally a second
// contraction.
Tolerance ToleranceOfSum(int64_t terms, int microbatches, int world_size, bool exact,
                         int64_t second = 0) {
  const Mesh mesh = OneRank();
  NumericTape tape(mesh, 0, nullptr);
  const Tensor x({Plain(Dim::kSequence, 1), Plain(Dim::kIn, terms)});
  const Tensor w({Plain(Dim::kOut, std::max<int64_t>(second, 1)), Plain(Dim::kIn, terms)});
  const Tensor v({Plain(Dim::kHidden, 1), Plain(Dim::kOut, std::max<int64_t>(second, 1))});
  Value y = Linear(tape, tape.Constant({"x", ShardMap(x.dims(), {}), &x}),
                   tape.Constant({"w", ShardMap(w.dims(), {}), &w}));
  if (second > 0) y = Linear(tape, y, tape.Constant({"v", ShardMap(v.dims(), {}), &v}));
  EXPECT_TRUE(tape.status().ok()) << tape.status();
  return DeriveTolerance(tape, microbatches, world_size, exact);
}

double SumInOrder(const std::vector<double>& terms) {
  double sum = 0;
  for (double term : terms) sum += term;
  return sum;
}

double SumReversed(std::vector<double> terms) {
  std::reverse(terms.begin(), terms.end());
  return SumInOrder(terms);
}

// As n ranks do: each a block, then the blocks' sums.
double SumInBlocks(const std::vector<double>& terms, size_t blocks) {
  const size_t length = terms.size() / blocks;
  double sum = 0;
  for (size_t b = 0; b < blocks; ++b) {
    sum += SumInOrder({terms.begin() + b * length, terms.begin() + (b + 1) * length});
  }
  return sum;
}

double Magnitude(const std::vector<double>& terms) {
  double magnitude = 0;
  for (double term : terms) magnitude += std::fabs(term);
  return magnitude;
}

// One, then half-ulps that each vanish in front of it but not among themselves: the worst that an
// order can do.
std::vector<double> Vanishing(int count) {
  std::vector<double> terms(count, kUnit);
  terms[0] = 1;
  return terms;
}

// Large terms that cancel in pairs far apart, with small ones between.
std::vector<double> Cancelling(int count) {
  const RandomStream stream(1, "cancelling");
  std::vector<double> terms(count);
  for (int i = 0; i < count; ++i) terms[i] = std::ldexp(2 * stream.Uniform(i) - 1, i % 40);
  for (int i = 0; i < count / 2; i += 2) terms[count - 1 - i] = -terms[i];
  return terms;
}

TEST(Tolerance, TwoOrdersOfOneSumStayInside) {
  for (int count : {8, 64, 1024, 4096}) {
    const Tolerance tolerance = ToleranceOfSum(count, 1, 1, false);
    EXPECT_GE(tolerance.height, count);
    for (const std::vector<double>& terms : {Vanishing(count), Cancelling(count)}) {
      const double allowed = tolerance.For(Magnitude(terms));
      for (double other : {SumReversed(terms), SumInBlocks(terms, 4), SumInBlocks(terms, 8)}) {
        EXPECT_LE(std::fabs(SumInOrder(terms) - other), allowed) << count;
      }
    }
  }
}

// No round percentage: the worst order uses up at least half of the bound.
TEST(Tolerance, TheBoundIsNearlyReached) {
  const int count = 4096;
  const std::vector<double> terms = Vanishing(count);
  const double difference = std::fabs(SumInOrder(terms) - SumReversed(terms));
  EXPECT_GT(difference, 0.5 * ToleranceOfSum(count, 1, 1, false).For(Magnitude(terms)));
}

TEST(Tolerance, AFaultJustAboveTheBoundIsSeen) {
  const std::vector<double> terms = Vanishing(1024);
  const Tensor sum = Vector(Dim::kOut, {1.0, SumInOrder(terms), 2.0});
  const double allowed = ToleranceOfSum(1024, 1, 1, false).For(Magnitude(terms));
  const double ulp = std::numeric_limits<double>::epsilon();
  Tensor other = sum.Clone();
  other.data()[1] += std::floor(allowed / ulp) * ulp;
  EXPECT_TRUE(Compare(sum, other, allowed).equal);
  other.data()[1] += ulp;
  const Comparison comparison = Compare(sum, other, allowed);
  EXPECT_FALSE(comparison.equal);
  EXPECT_EQ(comparison.mismatched, 1);
  EXPECT_EQ(comparison.worst, 1);
  EXPECT_GT(comparison.diff_abs_max, comparison.allowed);
}

// Roundings along a chain add up: contractions, microbatches, ranks.
TEST(Tolerance, HeightsAddUp) {
  const double one = ToleranceOfSum(100, 1, 1, false).height;
  const double two = ToleranceOfSum(100, 1, 1, false, 50).height;
  EXPECT_GE(one, 100);
  EXPECT_GE(two, one + 50);
  EXPECT_EQ(ToleranceOfSum(100, 4, 8, false).height, one + 3 + 7);
  const double hu = one * kUnit;
  EXPECT_EQ(ToleranceOfSum(100, 1, 1, false).gamma, hu / (1 - hu));
}

// Backward sums over what an operand lacks: a weight used on many tokens adds up a term of each.
TEST(Tolerance, TokensOfAWeightAreTerms) {
  const Mesh mesh = OneRank();
  NumericTape tape(mesh, 0, nullptr);
  const Tensor x({Plain(Dim::kSequence, 512), Plain(Dim::kIn, 2)});
  const Tensor w({Plain(Dim::kOut, 2), Plain(Dim::kIn, 2)});
  Linear(tape, tape.Constant({"x", ShardMap(x.dims(), {}), &x}),
         tape.Constant({"w", ShardMap(w.dims(), {}), &w}));
  ASSERT_TRUE(tape.status().ok()) << tape.status();
  EXPECT_GE(DeriveTolerance(tape, 1, 1, false).height, 512);
}

TEST(Tolerance, ExactAllowsNothing) {
  const Tolerance exact = ToleranceOfSum(64, 1, 1, true);
  EXPECT_EQ(exact.For(1e300), 0);
  const Tensor a = Vector(Dim::kOut, {1, 2});
  const Tensor b = Vector(Dim::kOut, {1, std::nextafter(2.0, 3.0)});
  EXPECT_TRUE(Compare(a, a.Clone(), exact.For(2)).equal);
  EXPECT_FALSE(Compare(a, b, exact.For(2)).equal);
}

TEST(Compare, NotANumberDiffersAndIsNamed) {
  const Tensor a = Vector(Dim::kOut, {0, 1, 2, 3});
  const Tensor b = Vector(Dim::kOut, {0, std::nan(""), 7, 3});
  const Comparison comparison = Compare(a, b, 1);
  EXPECT_FALSE(comparison.equal);
  EXPECT_EQ(comparison.mismatched, 2);
  EXPECT_EQ(comparison.worst, 1);
  EXPECT_TRUE(std::isnan(MaxAbs(b)));
  EXPECT_FALSE(Compare(b, b, 1).equal);
}

TEST(Compare, OtherCountsAreNotEqual) {
  EXPECT_FALSE(Compare(Vector(Dim::kOut, {1}), Vector(Dim::kOut, {1, 1}), 1).equal);
  EXPECT_FALSE(Compare(Tensor(), Tensor(), 1).equal);
}

}  // namespace
}  // namespace sumonce

// What was done is read off the numbers: one template where the contributions allow it, all that
// fit where they do not (theory section 9.2), and nothing that the numbers do not determine.
#include "verify/recover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using Vectors = std::vector<std::vector<double>>;
using Matrix = std::vector<std::vector<double>>;

constexpr double kBound = 1e-13;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::vector<std::span<const double>> Spans(const Vectors& vectors) {
  return {vectors.begin(), vectors.end()};
}

RecoveredAction Recover(const Vectors& contributions, const Vectors& results,
                        double bound = kBound) {
  return RecoverAction(Spans(contributions), Spans(results), bound);
}

Vectors Independent(int n, int count, uint64_t seed = 1) {
  const RandomStream stream(seed, "recover_test");
  Vectors vectors(n, std::vector<double>(count));
  for (int r = 0; r < n; ++r) {
    for (int i = 0; i < count; ++i) vectors[r][i] = 2 * stream.Uniform(r * count + i) - 1;
  }
  return vectors;
}

Vectors Copies(int n, const std::vector<double>& of) { return Vectors(n, of); }

Vectors Product(const Matrix& c, const Vectors& contributions) {
  Vectors results(c.size(), std::vector<double>(contributions[0].size()));
  for (size_t r = 0; r < c.size(); ++r) {
    for (size_t s = 0; s < contributions.size(); ++s) {
      for (size_t i = 0; i < results[r].size(); ++i) results[r][i] += c[r][s] * contributions[s][i];
    }
  }
  return results;
}

Matrix Make(int n, const std::function<double(int, int)>& entry) {
  Matrix c(n, std::vector<double>(n));
  for (int r = 0; r < n; ++r) {
    for (int s = 0; s < n; ++s) c[r][s] = entry(r, s);
  }
  return c;
}

struct Action {
  std::string name;
  Matrix c;
};

// The named actions of theory section 9.1, as matrices.
std::vector<Action> Actions(int n) {
  const double size = n;
  std::vector<Action> actions = {
      {"none", Make(n, [](int r, int s) { return r == s; })},
      {"SUM", Make(n, [](int, int) { return 1; })},
      {"AVG", Make(n, [&](int, int) { return 1 / size; })},
      {"SUM twice", Make(n, [&](int, int) { return size; })},
      {"AVG after /n", Make(n, [&](int, int) { return 1 / (size * size); })},
      {"n times own", Make(n, [&](int r, int s) { return r == s ? size : 0; })},
      {"own / n", Make(n, [&](int r, int s) { return r == s ? 1 / size : 0; })},
  };
  for (int k = 0; k < n; ++k) {
    actions.push_back(
        {absl::StrCat("copy of rank ", k), Make(n, [&](int, int s) { return s == k; })});
    actions.push_back(
        {absl::StrCat("n times rank ", k), Make(n, [&](int, int s) { return s == k ? size : 0; })});
    actions.push_back(
        {absl::StrCat("rank ", k, " lost"), Make(n, [&](int, int s) { return s != k; })});
  }
  for (int part = 2; part < n; ++part) {
    if (n % part != 0) continue;
    actions.push_back({absl::StrCat("blocks of ", part),
                       Make(n, [&](int r, int s) { return r / part == s / part; })});
    actions.push_back({absl::StrCat("strides of ", part),
                       Make(n, [&](int r, int s) { return r % part == s % part; })});
  }
  return actions;
}

// Two ranks: the sum without one is the other.
std::vector<std::string> NamesOfTheSameMap(const std::string& name) {
  if (name == "copy of rank 0" || name == "rank 1 lost") return {"copy of rank 0", "rank 1 lost"};
  if (name == "copy of rank 1" || name == "rank 0 lost") return {"copy of rank 1", "rank 0 lost"};
  return {name};
}

TEST(RecoverAction, IndependentContributionsLeaveOneMap) {
  for (int n : {2, 3, 4, 6, 8}) {
    const Vectors contributions = Independent(n, 3 * n);
    for (const auto& [name, c] : Actions(n)) {
      const RecoveredAction action = Recover(contributions, Product(c, contributions));
      EXPECT_EQ(action.rank, n) << name << ", n=" << n;
      const std::vector<std::string> names = n == 2 ? NamesOfTheSameMap(name) : std::vector{name};
      EXPECT_THAT(action.fits, ::testing::UnorderedElementsAreArray(names)) << name << ", n=" << n;
      EXPECT_EQ(WhatWouldDecide(action).empty(), names.size() == 1) << name << ", n=" << n;
    }
  }
}

// Of two ranks a copy and a lost term are one map: no contributions can tell them apart.
TEST(RecoverAction, TwoRanksCannotTellACopyFromALostTerm) {
  const Vectors contributions = Independent(2, 8);
  const RecoveredAction action = Recover(contributions, Copies(2, contributions[0]));
  EXPECT_THAT(action.fits, UnorderedElementsAre("copy of rank 0", "rank 1 lost"));
  EXPECT_THAT(WhatWouldDecide(action), HasSubstr("one and the same map"));
}

TEST(RecoverAction, EqualContributionsHideWhetherAnythingWasDone) {
  for (int n : {2, 3, 4}) {
    const Vectors contributions = Copies(n, Independent(1, 16)[0]);
    const RecoveredAction action = Recover(contributions, contributions);
    std::vector<std::string> expected = {"none", "AVG"};
    for (int r = 0; r < n; ++r) expected.push_back(absl::StrCat("copy of rank ", r));
    if (n == 2) expected.insert(expected.end(), {"rank 0 lost", "rank 1 lost"});
    EXPECT_THAT(action.fits, ::testing::UnorderedElementsAreArray(expected)) << n;
    EXPECT_EQ(action.rank, 1);
    EXPECT_THAT(WhatWouldDecide(action), HasSubstr("stacked"));
  }
}

TEST(RecoverAction, EqualContributionsSummedLookLikeAFactor) {
  for (int n : {2, 3, 4}) {
    const Vectors contributions = Copies(n, Independent(1, 16)[0]);
    const RecoveredAction action = Recover(contributions, Product(Actions(n)[1].c, contributions));
    std::vector<std::string> expected = {"SUM", "n times own"};
    for (int r = 0; r < n; ++r) expected.push_back(absl::StrCat("n times rank ", r));
    EXPECT_THAT(action.fits, ::testing::UnorderedElementsAreArray(expected)) << n;
    EXPECT_THAT(WhatWouldDecide(action), HasSubstr("communication log"));
  }
}

// The founding case: only the last rank's tokens have loss, and nothing is summed. Rank 0 would
// have v after a sum.
TEST(RecoverAction, MaskedShardsLeftAloneAreUnmistakable) {
  Vectors contributions(4, std::vector<double>(16));
  contributions[3] = Independent(1, 16)[0];
  const RecoveredAction action = Recover(contributions, contributions, 0);
  EXPECT_THAT(action.fits, ElementsAre("none"));
  EXPECT_EQ(action.rank, 1);
  EXPECT_EQ(WhatWouldDecide(action), "");
}

TEST(RecoverAction, MaskedShardsSummedHideWhoseTermsWereLost) {
  Vectors contributions(4, std::vector<double>(16));
  contributions[3] = Independent(1, 16)[0];
  const RecoveredAction action = Recover(contributions, Copies(4, contributions[3]), 0);
  EXPECT_THAT(action.fits, UnorderedElementsAre("SUM", "rank 0 lost", "rank 1 lost", "rank 2 lost",
                                                "copy of rank 3"));
  EXPECT_THAT(WhatWouldDecide(action), HasSubstr("in which every rank contributes"));
}

// Stacking a step in which every rank contributes is what the sentence promises.
TEST(RecoverAction, StackingAnotherStepDecides) {
  Vectors contributions(4, std::vector<double>(16));
  contributions[3] = Independent(1, 16)[0];
  const Vectors more = Independent(4, 16, 2);
  for (int r = 0; r < 4; ++r)
    contributions[r].insert(contributions[r].end(), more[r].begin(), more[r].end());
  EXPECT_THAT(Recover(contributions, Product(Actions(4)[1].c, contributions)).fits,
              ElementsAre("SUM"));
}

// Two elements on four ranks: least squares is not unique, the template is.
TEST(RecoverAction, FewElementsStillLeaveOneTemplate) {
  const Vectors contributions = Independent(4, 2);
  for (const auto& [name, c] : Actions(4)) {
    const RecoveredAction action = Recover(contributions, Product(c, contributions));
    EXPECT_THAT(action.fits, ElementsAre(name));
    EXPECT_EQ(action.rank, 2);
  }
}

TEST(RecoverAction, ZeroEverywhereIsNoEvidence) {
  const Vectors zeros(3, std::vector<double>(4));
  const RecoveredAction action = Recover(zeros, zeros, 0);
  EXPECT_TRUE(action.zero);
  EXPECT_TRUE(action.inside_group);
  EXPECT_THAT(action.fits, IsEmpty());
  EXPECT_EQ(action.rank, 0);
  EXPECT_THAT(WhatWouldDecide(action), HasSubstr("not zero"));
}

TEST(RecoverAction, SomethingOutOfNothingIsNoCombination) {
  const Vectors zeros(2, std::vector<double>(4));
  const RecoveredAction action = Recover(zeros, Copies(2, {0, 0, 3, 0}), 0);
  EXPECT_TRUE(action.zero);
  EXPECT_FALSE(action.inside_group);
  EXPECT_EQ(action.residual, 3);
  EXPECT_THAT(WhatWouldDecide(action), HasSubstr("another group"));
}

void ExpectMatrix(const std::vector<double>& actual, const Matrix& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size() * expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double entry = expected[i / expected.size()][i % expected.size()];
    if (std::isnan(entry)) {
      EXPECT_TRUE(std::isnan(actual[i]))
          << "entry " << i << " is " << actual[i] << ", which no number determines";
    } else {
      EXPECT_NEAR(actual[i], entry, tolerance) << "entry " << i;
    }
  }
}

TEST(RecoverAction, LeastSquaresFindsAnyMapOfIndependentContributions) {
  for (int n : {2, 3, 4}) {
    const Vectors contributions = Independent(n, 5 * n);
    const Matrix c = Independent(n, n, 7);
    const RecoveredAction action = Recover(contributions, Product(c, contributions));
    EXPECT_THAT(action.fits, IsEmpty());
    EXPECT_EQ(action.rank, n);
    EXPECT_TRUE(action.inside_group) << action.residual;
    ExpectMatrix(action.coefficients, c, 1e-12);
  }
}

// Ranks 0 and 1 contribute the same, rank 2 zero, rank 3 its own: only rank 3's column can be
// known.
TEST(RecoverAction, OnlyDeterminedEntriesAreGiven) {
  Vectors contributions = Independent(4, 16);
  contributions[1] = contributions[0];
  contributions[2].assign(16, 0.0);
  const Matrix c = Independent(4, 4, 7);
  const RecoveredAction action = Recover(contributions, Product(c, contributions));
  EXPECT_EQ(action.rank, 2);
  EXPECT_TRUE(action.inside_group);
  ExpectMatrix(action.coefficients,
               Make(4, [&](int r, int s) { return s == 3 ? c[r][s] : kUnknown; }), 1e-12);
  for (double sum : action.row_sums)
    EXPECT_TRUE(std::isnan(sum)) << "rank 2's coefficient is unknown";
}

// A gradient that is complete on every rank, scaled by 5/2: every entry is open, what they add up
// to is not. The least-squares solution of smallest norm would read 5/8 in every entry, an average
// that nobody took.
TEST(RecoverAction, EqualContributionsDetermineOnlyTheRowSum) {
  const Vectors contributions = Copies(4, Independent(1, 16)[0]);
  const Vectors results =
      Product(Make(4, [](int r, int s) { return r == s ? 2.5 : 0; }), contributions);
  const RecoveredAction action = Recover(contributions, results);
  EXPECT_THAT(action.fits, IsEmpty());
  EXPECT_EQ(action.rank, 1);
  EXPECT_TRUE(action.inside_group);
  ExpectMatrix(action.coefficients, Make(4, [](int, int) { return kUnknown; }), 0);
  for (double sum : action.row_sums) EXPECT_NEAR(sum, 2.5, 1e-13);
}

// c_2 = c_0 + 2 c_1 with weights that nothing hides: one null vector (1, 2, -1) touches every
// entry, its sum is 2.
TEST(RecoverAction, ADependentContributionLeavesItsPartnersOpen) {
  Vectors contributions = Independent(4, 16);
  for (int i = 0; i < 16; ++i) contributions[2][i] = contributions[0][i] + 2 * contributions[1][i];
  const Matrix c = Independent(4, 4, 7);
  const RecoveredAction action = Recover(contributions, Product(c, contributions));
  EXPECT_EQ(action.rank, 3);
  ExpectMatrix(action.coefficients,
               Make(4, [&](int r, int s) { return s == 3 ? c[r][s] : kUnknown; }), 1e-11);
  for (double sum : action.row_sums) EXPECT_TRUE(std::isnan(sum));
}

// Contributions of very different size span as many directions as any others.
TEST(RecoverAction, SizesOfContributionsDoNotHideDirections) {
  Vectors contributions = Independent(3, 12);
  for (double& value : contributions[1]) value *= 1e-150;
  for (double& value : contributions[2]) value *= 1e150;
  const Matrix c = Make(3, [](int r, int s) { return 0.5 + r + s * s; });
  const RecoveredAction action = Recover(contributions, Product(c, contributions), 0);
  EXPECT_EQ(action.rank, 3);
  EXPECT_TRUE(action.inside_group);
}

// A difference between contributions that is below the bound is rounding, not a direction.
TEST(RecoverAction, DifferencesBelowTheBoundAreNoDirections) {
  Vectors contributions = Copies(3, Independent(1, 16)[0]);
  const Vectors noise = Independent(3, 16, 3);
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 16; ++i) contributions[r][i] += 1e-5 * noise[r][i];
  }
  const auto summed = Product(Actions(3)[1].c, contributions);
  const RecoveredAction coarse = Recover(contributions, summed, 1e-4);
  EXPECT_EQ(coarse.rank, 1);
  EXPECT_THAT(coarse.fits, ::testing::IsSupersetOf({"SUM", "n times own"}));
  const RecoveredAction fine = Recover(contributions, summed, 1e-14);
  EXPECT_EQ(fine.rank, 3);
  EXPECT_THAT(fine.fits, ElementsAre("SUM"));
}

TEST(RecoverAction, AnotherGroupsTermsAreNoCombination) {
  const Vectors world = Independent(4, 16);
  const Vectors inside(world.begin(), world.begin() + 2);
  const Vectors everyone = Product(Actions(4)[1].c, world);
  const RecoveredAction action = Recover(inside, {everyone[0], everyone[1]});
  EXPECT_FALSE(action.inside_group);
  EXPECT_GT(action.residual, 0.1);
  EXPECT_THAT(WhatWouldDecide(action), HasSubstr("another group"));
  EXPECT_THAT(Recover(world, everyone).fits, ElementsAre("SUM"));
}

// One element off by more than the bound is enough; in exact mode one part in 2^52 is.
TEST(RecoverAction, EveryElementCounts) {
  const Vectors contributions = {{1, 2, 3}, {4, 5, 6}, {7, 8, 10}};
  Vectors results = Copies(3, {12, 15, 19});
  EXPECT_THAT(Recover(contributions, results, 0).fits, ElementsAre("SUM"));
  results[2][2] = std::nextafter(19.0, 20.0);
  EXPECT_THAT(Recover(contributions, results, 0).fits, IsEmpty());
  EXPECT_THAT(Recover(contributions, results, 1e-14).fits, ElementsAre("SUM"));
}

// 49 * (1 / 49) is below 1 in floating point: the sum is divided, as the communicators do.
TEST(RecoverAction, AveragesOfIntegersAreExact) {
  Vectors contributions;
  for (double r = 0; r < 49; ++r)
    contributions.push_back({1 + (r - 24), 2 - 3 * (r - 24), r == 24 ? 49.0 : 0.0});
  EXPECT_THAT(Recover(contributions, Copies(49, {1, 2, 1}), 0).fits, ElementsAre("AVG"));
}

// Contributions that differ by one part in 10^4: the normal equations alone would leave 10^-8 of
// the coefficients, and a residual that looks like another group's terms.
TEST(RecoverAction, NearlyEqualContributionsAreSolvedToRounding) {
  Vectors contributions = Copies(3, Independent(1, 64)[0]);
  const Vectors difference = Independent(3, 64, 5);
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 64; ++i) contributions[r][i] += 1e-4 * difference[r][i];
  }
  const Matrix c = Independent(3, 3, 7);
  const RecoveredAction action = Recover(contributions, Product(c, contributions), 0);
  EXPECT_EQ(action.rank, 3);
  EXPECT_TRUE(action.inside_group) << action.residual;
  ExpectMatrix(action.coefficients, c, 1e-10);
}

TEST(RecoverAction, NumbersThatAreNotFiniteFitNothing) {
  Vectors contributions = Independent(2, 4);
  contributions[1][2] = kUnknown;
  for (const RecoveredAction& action :
       {Recover(contributions, contributions), Recover(Independent(2, 4), contributions)}) {
    EXPECT_THAT(action.fits, IsEmpty());
    EXPECT_FALSE(action.inside_group);
    EXPECT_EQ(action.residual, std::numeric_limits<double>::infinity());
  }
}

// Sums of many elements in another order: the bound of a long vector is met, and the true map
// found.
TEST(RecoverAction, LongVectorsKeepTheirRank) {
  const Vectors contributions = Independent(3, 100000);
  const Matrix c = Make(3, [](int r, int s) { return 1 + 0.25 * r - s; });
  const RecoveredAction action = Recover(contributions, Product(c, contributions));
  EXPECT_EQ(action.rank, 3);
  EXPECT_TRUE(action.inside_group) << action.residual;
  ExpectMatrix(action.coefficients, c, 1e-13);
}

}  // namespace
}  // namespace sumonce

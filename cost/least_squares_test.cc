#include "cost/least_squares.h"

#include "gtest/gtest.h"

namespace sumonce {
namespace {

TEST(NonNegativeLeastSquares, SolvesWhatHasAnExactSolution) {
  const std::vector<double> x = NonNegativeLeastSquares({{1, 0}, {1, 1e6}, {1, 2e6}}, {3, 5, 7});
  EXPECT_NEAR(x[0], 3, 1e-9);
  EXPECT_NEAR(x[1], 2e-6, 1e-15);
}

// Free, the slope would be -1: held at 0, the best constant is the mean.
TEST(NonNegativeLeastSquares, HoldsAnUnknownAtZeroRatherThanBelow) {
  const std::vector<double> x = NonNegativeLeastSquares({{1, 0}, {1, 1}, {1, 2}}, {4, 3, 2});
  EXPECT_NEAR(x[0], 3, 1e-12);
  EXPECT_EQ(x[1], 0);
}

TEST(NonNegativeLeastSquares, AnUnknownThatNothingDeterminesIsZero) {
  const std::vector<double> x = NonNegativeLeastSquares({{1, 0}, {2, 0}}, {2, 4});
  EXPECT_NEAR(x[0], 2, 1e-12);
  EXPECT_EQ(x[1], 0);
}

}  // namespace
}  // namespace sumonce

#include "base/status.h"

#include <gtest/gtest.h>

namespace sumonce {
namespace {

TEST(StatusTest, FailedCheckNamesPlaceConditionAndValues) {
  const int rank = 3;
  EXPECT_DEATH(SUMONCE_CHECK(rank < 2) << "rank " << rank,
               "status_test.cc:[0-9]+: internal error: rank < 2 does not hold: rank 3");
}

TEST(StatusTest, CheckEvaluatesItsConditionOnce) {
  int evaluated = 0;
  SUMONCE_CHECK(++evaluated > 0) << "never built";
  EXPECT_EQ(evaluated, 1);
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  SUMONCE_ASSIGN_OR_RETURN(const int half, Half(value));
  SUMONCE_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

absl::Status CheckMultipleOfFour(int value) {
  SUMONCE_RETURN_IF_ERROR(Quarter(value).status());
  return absl::OkStatus();
}

TEST(StatusTest, MacrosPassValuesOnAndReturnTheFirstError) {
  EXPECT_EQ(Quarter(12).value(), 3);
  EXPECT_EQ(Quarter(6).status(), absl::InvalidArgumentError("odd"));
  EXPECT_TRUE(CheckMultipleOfFour(8).ok());
  EXPECT_EQ(CheckMultipleOfFour(6), absl::InvalidArgumentError("odd"));
}

TEST(StatusTest, StringViewsCrossToAbslAndBack) {
  const std::string_view with_zero("a\0b", 3);
  EXPECT_EQ(FromAbsl(ToAbsl(with_zero)), with_zero);
}

}  // namespace
}  // namespace sumonce

#include "comm/errors.h"

#include "gtest/gtest.h"

namespace sumonce {
namespace {

// Each kind keeps its Abseil code and its name, also through a copy as StatusOr and annotation code
// make.
TEST(Errors, KindsSurviveCopies) {
  const absl::Status mismatch = CollectiveMismatchError("m");
  const absl::Status copy = mismatch;
  EXPECT_EQ(KindOf(copy), RunFailure::kCollectiveMismatch);
  EXPECT_EQ(mismatch.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(KindOf(DeadlockError("d")), RunFailure::kDeadlock);
  EXPECT_EQ(DeadlockError("d").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(KindOf(RankLostError("r")), RunFailure::kRankLost);
  EXPECT_EQ(RankLostError("r").code(), absl::StatusCode::kUnavailable);
}

// The code alone does not make a run failure: other errors use the same codes.
TEST(Errors, OtherStatusesHaveNoKind) {
  EXPECT_EQ(KindOf(absl::OkStatus()), RunFailure::kNone);
  EXPECT_EQ(KindOf(absl::AbortedError("user")), RunFailure::kNone);
  EXPECT_EQ(KindOf(absl::FailedPreconditionError("user")), RunFailure::kNone);
}

}  // namespace
}  // namespace sumonce

// The ways in which a run itself fails, as statuses that keep their kind on the way up (an Abseil
// payload).
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sumonce {

enum class RunFailure {
  kNone,                // OK, or an error of another kind
  kCollectiveMismatch,  // FailedPrecondition: ranks of a group made different calls
  kDeadlock,            // Aborted: every rank waits for another
  kRankLost,            // Unavailable: a rank failed or left while others waited for it
};

absl::Status CollectiveMismatchError(const std::string& message);
absl::Status DeadlockError(const std::string& message);
absl::Status RankLostError(const std::string& message);
RunFailure KindOf(const absl::Status& status);

}  // namespace sumonce

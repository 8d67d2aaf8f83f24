#include "comm/errors.h"

#include "absl/strings/cord.h"

namespace sumonce {
namespace {

constexpr char kPayloadUrl[] = "sumonce/run_failure";
constexpr char kMismatch[] = "collective_mismatch";
constexpr char kDeadlock[] = "deadlock";
constexpr char kRankLost[] = "rank_lost";

absl::Status Marked(absl::Status status, const char* kind) {
  status.SetPayload(kPayloadUrl, absl::Cord(kind));
  return status;
}

}  // namespace

absl::Status CollectiveMismatchError(const std::string& message) {
  return Marked(absl::FailedPreconditionError(message), kMismatch);
}

absl::Status DeadlockError(const std::string& message) {
  return Marked(absl::AbortedError(message), kDeadlock);
}

absl::Status RankLostError(const std::string& message) {
  return Marked(absl::UnavailableError(message), kRankLost);
}

RunFailure KindOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return RunFailure::kNone;
  if (*payload == kMismatch) return RunFailure::kCollectiveMismatch;
  if (*payload == kDeadlock) return RunFailure::kDeadlock;
  return *payload == kRankLost ? RunFailure::kRankLost : RunFailure::kNone;
}

}  // namespace sumonce

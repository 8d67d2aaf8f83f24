// The calls that a rank recorded as messages, some thousands each, and back. Little is trusted: a
// message that does not hold what it says is Internal.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/recording.h"

namespace sumonce {

// Calls `send` with one message after the other; the first says how many calls follow.
absl::Status SendCalls(const RankCalls& calls,
                       const std::function<absl::Status(const std::string&)>& send);

// Calls `receive` until all have come.
absl::Status ReceiveCalls(const std::function<absl::StatusOr<std::string>()>& receive,
                          RankCalls& calls);

}  // namespace sumonce

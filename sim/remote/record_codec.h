// A rank's records as messages, one parameter each, so that a sender holds no second copy of its
// record; and back. Little is trusted: a message that does not hold what it says is Internal.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/record.h"

namespace sumonce {

// Calls `send` with one message after the other, the last of which says that it is the last.
absl::Status SendRecords(const RankRecords& records,
                         const std::function<absl::Status(const std::string&)>& send);

// Calls `receive` until the last message has come.
absl::Status ReceiveRecords(const std::function<absl::StatusOr<std::string>()>& receive,
                            RankRecords& records);

}  // namespace sumonce

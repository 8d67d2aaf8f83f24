// What one member of a group brings to a meeting (comm/in_process/rendezvous.h).
#pragma once

#include <cstdint>

#include "comm/communicator.h"

namespace sumonce {

struct SplitKey {
  int color = 0;
  int key = 0;
};

// Alone on its cache lines: members deposit at the same time.
struct alignas(64) Deposit {
  enum class State : uint8_t { kMissing, kMade, kWithdrawn };

  Call call;
  SplitKey split;
  State state = State::kMissing;
  int arrival = -1;  // of a call with any_order: after so many of them; others: -1
};

}  // namespace sumonce

// One piece of one matched call, on the devices of those of its ranks that this process drives: all
// of them, or one.
//
// Each rank's part goes through pinned memory to its device, the collective runs there, and the
// result comes back the same way: everything in the order of the rank's one stream, and waited for
// once at the end. Ordered sums (the default) are the exchange of slices, the sum of a rank's slice
// over the ranks in ascending order (comm/nccl/ordered_sum.h), and the gathering of the sums: bit
// for bit what comm/reduce.h gives, for the bytes that a ring would send. Native sums are NCCL's
// own, in whatever order.
//
// After an error the devices are in an unknown state: abort the communicators, close the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "comm/nccl/api.h"
#include "comm/nccl/device_rank.h"

namespace sumonce::nccl {

struct Member {
  DeviceRank* device = nullptr;
  Comm comm = nullptr;
  int rank = 0;  // in the group
  const Call* call = nullptr;
};

// When a wait for devices ends without what it waits for.
struct WaitLimits {
  int64_t time_limit_us = 0;
  // Asked meanwhile: an error ends the wait. Empty: nothing does.
  std::function<absl::Status()> interrupted;
};

struct CollectiveOptions {
  int group_size = 1;
  bool native_sums = false;
  WaitLimits limits;  // of each wait
};

// How a call's payload is cut into pieces that the buffers of a rank can hold.
struct Pieces {
  int64_t unit_count = 0;   // elements of a slice, or of all where there are no slices
  int64_t piece_count = 1;  // elements of it that one piece takes, but for the last
  int64_t number() const { return (unit_count + piece_count - 1) / piece_count; }
};
// For a group of `size`. A piece takes at most about 4 MiB on each side of a rank.
Pieces PiecesOf(const Call& call, int size);

// Moves the piece for all members at once. Calls of one rank must not overlap in time.
absl::Status MovePiece(Api api, const CollectiveOptions& options, std::span<const Member> members,
                       int64_t piece);

// Runs `enqueue` for each member, on its device, inside one NCCL group, and waits until all its
// communicators have accepted.
absl::Status InGroup(Api api, std::span<const Member> members, const WaitLimits& limits,
                     const std::function<absl::Status(const Member&)>& enqueue);

// Polls until no communicator is in progress, naming `what` is awaited if time runs out.
absl::Status AwaitComms(Api api, std::span<const Member> members, const WaitLimits& limits,
                        const char* what);

}  // namespace sumonce::nccl

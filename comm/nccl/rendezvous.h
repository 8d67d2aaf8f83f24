// Where the members of a group meet for one call: they deposit their calls, the last one to come
// compares them, and then whoever waits moves the data, chunk by chunk.
//
// Guarded by the scheduler's Exclusive sections, but for the chunks, which are claimed and counted
// with atomics. A member's buffers are read and written from the match until `complete`, or until
// Cancel has returned.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"
#include "comm/executor.h"
#include "comm/nccl/data_plane.h"

namespace sumonce::nccl {

struct GroupState;

struct SplitKey {
  int color = 0;
  int key = 0;
};

// A member's part in the group that a Split made. No group: it passed a negative color.
struct SplitPart {
  std::shared_ptr<GroupState> group;
  int rank = 0;
};

class Rendezvous {
 public:
  // `members`: world ranks, in the order of their slots; all of `group`, or two of them. The group
  // outlives whoever waits here.
  Rendezvous(Scheduler& scheduler, GroupState& group, std::vector<int> members);

  // In an Exclusive section. The last one matches: FailedPrecondition (CollectiveMismatch) if the
  // calls differ.
  absl::Status Deposit(int slot, Call call, SplitKey split);
  bool matched() const { return matched_; }
  bool complete() const { return complete_; }
  bool HasDeposit(int slot) const { return slots_[slot].state != SlotState::kEmpty; }
  // "AllReduce SUM of 64 float64 (label) on tp [0 1]: rank 1 missing", as seen from `slot`.
  std::string WaitingFor(int slot) const;
  // Of a matched Split.
  SplitPart TakePart(int slot) { return std::move(parts_[slot]); }

  // Outside Exclusive sections, after the match. Moves chunks until none is left; nobody else need
  // help. What goes wrong stops the run.
  void Help();
  // Outside Exclusive sections. When it returns nobody touches the buffers of `slot` any more: an
  // unmatched deposit is taken back, a transfer under way is stopped between chunks. Only for a
  // member that fails.
  void Cancel(int slot);

 private:
  enum class SlotState : uint8_t { kEmpty, kDeposited, kWithdrawn };
  struct Slot {
    SlotState state = SlotState::kEmpty;
    SplitKey split;
  };

  void Match();  // and who moves the data is up to the group's data plane
  void MakeParts();
  void Complete();
  std::vector<int> RanksIn(SlotState state) const;

  Scheduler& scheduler_;
  GroupState& group_;
  std::vector<int> members_;
  std::vector<Slot> slots_;
  std::vector<Call> calls_;  // by slot
  int deposits_ = 0;
  bool matched_ = false;
  bool complete_ = false;
  bool cancelled_ = false;
  std::unique_ptr<Transfer> transfer_;  // of a matched call; null: nothing to move
  int64_t chunks_ = 0;
  std::atomic<int64_t> next_chunk_ = 0;
  std::atomic<int64_t> moved_chunks_ = 0;
  std::atomic<int> helpers_ = 0;
  std::vector<SplitPart> parts_;
};

}  // namespace sumonce::nccl

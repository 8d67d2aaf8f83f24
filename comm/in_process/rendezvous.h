// Where the members of a group meet for one call: they deposit their calls, the last one to come
// compares them, and then the data moves. A call of one chunk is moved by the last one to come, at
// once; the chunks of a larger one by whoever waits, each member beginning with its own slice.
//
// Free of locks: every function may run on any member's thread at any time, for its own slot. Under
// the last deposit, all earlier ones are visible. A member's buffers are read and written from the
// match until `complete`, or until SeeThrough or Abandon has returned.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/in_process/deposit.h"
#include "comm/in_process/transfer.h"

namespace sumonce {

struct GroupState;

// Who meets.
struct Members {
  std::vector<int> world_ranks;  // by slot
  std::string group;             // for messages, "tp [0 1]"
};

// A member's part in the group that a Split made. No group: it passed a negative color.
struct SplitPart {
  std::shared_ptr<GroupState> group;
  int rank = 0;
};

class Rendezvous {
 public:
  // `members` outlive it.
  explicit Rendezvous(const Members& members);

  // Once per slot. The last one matches: FailedPrecondition (CollectiveMismatch) if the calls
  // differ.
  absl::Status Enter(int slot, Call&& call, SplitKey split);
  bool matched() const {
    const int state = state_.load();
    return state == kMatched || state == kComplete;
  }
  // Members may still come.
  bool open() const {
    const int state = state_.load();
    return state >= 0 && state < kWithdrawn;
  }
  bool complete() const { return state_.load() == kComplete; }
  // After the match. Moves chunks until none is left; nobody else need help. True for the one that
  // completes the call.
  bool Help(int slot);
  // Of a complete Split.
  SplitPart TakePart(int slot) { return std::move(parts_[slot]); }

  // Both end a member's part, and nobody touches the buffers of `slot` when they return. A deposit
  // without a match is taken back. After the match SeeThrough completes the call (true: it was this
  // member that did), and Abandon, for a member that fails, stops it between chunks.
  bool SeeThrough(int slot);
  void Abandon(int slot);

  // "AllReduce SUM of 64 float64 (label) on tp [0 1]: rank 1 missing", as seen from `slot`. While
  // no member is inside another function.
  std::string WaitingFor(int slot) const;

  // The chain and the pool of comm/in_process/channel.h.
  std::atomic<Rendezvous*>& next() { return next_; }
  // Once per slot. True for the last member to leave: then nobody knows it any more, and it is as
  // new.
  bool Leave(int slot);

 private:
  // The values of state_: how many members have come, with kWithdrawn added once one of them has
  // taken its call back. The last one to come, if none has, replaces it by one of the others. So
  // one atomic word decides what happened first.
  static constexpr int kWithdrawn = 1 << 30;
  static constexpr int kRefused = -1;
  static constexpr int kMatched = -2;  // members move the data
  static constexpr int kComplete = -3;

  // The chunks that one member moves first.
  struct alignas(64) Slice {
    std::atomic<int64_t> next = 0;
    int64_t end = 0;
  };

  int size() const { return static_cast<int>(deposits_.size()); }
  absl::Status CheckDeposits() const;
  void Match();
  void MakeParts();
  int64_t MoveSlice(Slice& slice);
  bool TakeBack(int slot);
  void AwaitHelpers() const;
  std::vector<int> RanksIn(Deposit::State state) const;
  void Reset();

  const Members& members_;
  std::vector<Deposit> deposits_;  // by slot
  std::vector<Slice> slices_;      // by slot
  std::vector<SplitPart> parts_;   // by slot
  Transfer transfer_;
  // All that every member writes in every call, on one line: a small call costs little more than
  // the journeys of lines between cores.
  alignas(64) std::atomic<int> state_ = 0;
  std::atomic<int> users_;
  std::atomic<Rendezvous*> next_ = nullptr;
  std::atomic<bool> broken_ = false;  // a member left a call that did not complete
  std::atomic<int> arrivals_ = 0;     // of calls with any_order
  alignas(64) std::atomic<int64_t> moved_chunks_ = 0;
  std::atomic<int> helpers_ = 0;
};

}  // namespace sumonce

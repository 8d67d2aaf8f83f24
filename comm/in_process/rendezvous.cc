#include "comm/in_process/rendezvous.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "base/status.h"
#include "comm/call_check.h"
#include "comm/in_process/group_state.h"

namespace sumonce {

Rendezvous::Rendezvous(const Members& members)
    : members_(members),
      deposits_(members.world_ranks.size()),
      slices_(members.world_ranks.size()),
      users_(size()) {}

absl::Status Rendezvous::Enter(int slot, Call&& call, SplitKey split) {
  Deposit& deposit = deposits_[slot];
  SUMONCE_CHECK(deposit.state == Deposit::State::kMissing) << Describe(call);
  deposit.call = std::move(call);
  deposit.split = split;
  deposit.state = Deposit::State::kMade;
  deposit.arrival = deposit.call.any_order ? arrivals_.fetch_add(1, std::memory_order_relaxed) : -1;
  if (state_.fetch_add(1) + 1 != size()) return absl::OkStatus();
  absl::Status match = CheckDeposits();
  if (match.ok()) {
    Match();
  } else {
    state_.store(kRefused);
  }
  return match;
}

// Calls are compared where they lie; only a mismatch is worth a copy.
absl::Status Rendezvous::CheckDeposits() const {
  const auto differs = [&](const Deposit& deposit) {
    return !CallsMatch(deposits_.front().call, deposit.call);
  };
  if (std::none_of(deposits_.begin() + 1, deposits_.end(), differs)) return absl::OkStatus();
  std::vector<Call> calls;
  for (const Deposit& deposit : deposits_) calls.push_back(deposit.call);
  return CheckMatch(calls, members_.world_ranks, members_.group);
}

// By the last one to come.
void Rendezvous::Match() {
  transfer_ = Transfer(deposits_);
  const int64_t chunks = transfer_.chunks();
  if (chunks > 1) {
    moved_chunks_.store(0, std::memory_order_relaxed);
    for (int slot = 0; slot < size(); ++slot) {
      slices_[slot].next.store(chunks * slot / size(), std::memory_order_relaxed);
      slices_[slot].end = chunks * (slot + 1) / size();
    }
    return state_.store(kMatched);
  }
  if (chunks == 1) transfer_.Move(0);
  if (deposits_.front().call.kind == CallKind::kSplit) MakeParts();
  state_.store(kComplete);
}

void Rendezvous::MakeParts() {
  parts_.resize(size());
  std::map<int, std::vector<std::pair<int, int>>> by_color;  // (key, slot)
  for (int slot = 0; slot < size(); ++slot) {
    const SplitKey& split = deposits_[slot].split;
    if (split.color >= 0) by_color[split.color].push_back({split.key, slot});
  }
  for (auto& [color, order] : by_color) {
    std::sort(order.begin(), order.end());
    std::vector<int> ranks;
    for (const auto& [key, slot] : order) ranks.push_back(members_.world_ranks[slot]);
    const auto group =
        std::make_shared<GroupState>(deposits_[order.front().second].call.label, ranks);
    for (int rank = 0; rank < static_cast<int>(order.size()); ++rank) {
      parts_[order[rank].second] = {group, rank};
    }
  }
}

// From its own slice on: what the member worked on last time is still in its caches.
bool Rendezvous::Help(int slot) {
  helpers_.fetch_add(1, std::memory_order_relaxed);
  int64_t moved = 0;
  for (int k = 0; k < size(); ++k) moved += MoveSlice(slices_[(slot + k) % size()]);
  const bool completes =
      moved > 0 &&
      moved_chunks_.fetch_add(moved, std::memory_order_acq_rel) + moved == transfer_.chunks();
  if (completes) state_.store(kComplete);
  helpers_.fetch_sub(1, std::memory_order_release);
  return completes;
}

// The claim publishes that this member helps, before Abandon ends the slice: see there.
int64_t Rendezvous::MoveSlice(Slice& slice) {
  int64_t moved = 0;
  while (slice.next.load(std::memory_order_relaxed) < slice.end) {
    const int64_t chunk = slice.next.fetch_add(1, std::memory_order_acq_rel);
    if (chunk >= slice.end) break;
    transfer_.Move(chunk);
    ++moved;
  }
  return moved;
}

bool Rendezvous::SeeThrough(int slot) {
  if (TakeBack(slot)) return false;
  const bool completes = matched() && !complete() && Help(slot);
  AwaitHelpers();
  return completes;
}

// A member that claimed a chunk before the exchange has counted itself a helper before that, and
// the exchange makes it visible; one that comes later finds the slice at its end.
void Rendezvous::Abandon(int slot) {
  if (TakeBack(slot)) return;
  for (Slice& slice : slices_) slice.next.exchange(slice.end, std::memory_order_acq_rel);
  AwaitHelpers();
}

// False: the call is matched or refused. Once all have come, the last one is about to say which; it
// waits for nothing, so neither does this for long.
bool Rendezvous::TakeBack(int slot) {
  int state = state_.load();
  while (state >= 0) {
    if (state == size()) {
      std::this_thread::yield();
      state = state_.load();
    } else if (state_.compare_exchange_weak(state, state | kWithdrawn)) {
      deposits_[slot].state = Deposit::State::kWithdrawn;
      return true;
    }
  }
  return false;
}

// Helpers wait for nothing, so this ends with their current chunks.
void Rendezvous::AwaitHelpers() const {
  while (helpers_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
}

std::string Rendezvous::WaitingFor(int slot) const {
  const Call& call = deposits_[slot].call;
  if (matched()) return DescribeWait(call, members_.group, {}, {});
  return DescribeWait(call, members_.group, RanksIn(Deposit::State::kMissing),
                      RanksIn(Deposit::State::kWithdrawn));
}

std::vector<int> Rendezvous::RanksIn(Deposit::State state) const {
  std::vector<int> ranks;
  for (int slot = 0; slot < size(); ++slot) {
    if (deposits_[slot].state == state) ranks.push_back(members_.world_ranks[slot]);
  }
  return ranks;
}

// Each takes its own deposit out of a call that went well, where the line is its own already; after
// any other, a peer may still ask who withdrew.
bool Rendezvous::Leave(int slot) {
  if (complete()) {
    deposits_[slot].state = Deposit::State::kMissing;
  } else {
    broken_.store(true, std::memory_order_relaxed);
  }
  if (users_.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  Reset();
  return true;
}

void Rendezvous::Reset() {
  if (broken_.load(std::memory_order_relaxed)) {
    for (Deposit& deposit : deposits_) deposit.state = Deposit::State::kMissing;
    broken_.store(false, std::memory_order_relaxed);
  }
  parts_.clear();
  arrivals_.store(0, std::memory_order_relaxed);
  state_.store(0, std::memory_order_relaxed);
  next_.store(nullptr, std::memory_order_relaxed);
  users_.store(size(), std::memory_order_relaxed);
}

}  // namespace sumonce

#include "comm/nccl/rendezvous.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "base/status.h"
#include "comm/call_check.h"
#include "comm/nccl/group_state.h"

namespace sumonce::nccl {

Rendezvous::Rendezvous(Scheduler& scheduler, GroupState& group, std::vector<int> members)
    : scheduler_(scheduler),
      group_(group),
      members_(std::move(members)),
      slots_(members_.size()),
      calls_(members_.size()) {}

absl::Status Rendezvous::Deposit(int slot, Call call, SplitKey split) {
  SUMONCE_CHECK(slots_[slot].state == SlotState::kEmpty) << Describe(call);
  slots_[slot] = {SlotState::kDeposited, split};
  calls_[slot] = std::move(call);
  if (++deposits_ < static_cast<int>(members_.size())) return absl::OkStatus();
  for (const Slot& other : slots_) {
    if (other.state == SlotState::kWithdrawn) return absl::OkStatus();
  }
  SUMONCE_RETURN_IF_ERROR(CheckMatch(calls_, members_, group_.description));
  Match();
  return absl::OkStatus();
}

void Rendezvous::Match() {
  matched_ = true;
  if (calls_.front().kind == CallKind::kSplit) MakeParts();
  transfer_ = group_.plane.Prepare({.group = group_, .calls = calls_, .parts = parts_});
  chunks_ = transfer_ == nullptr ? 0 : transfer_->chunks();
  if (chunks_ == 0) complete_ = true;
  for (int rank : members_) scheduler_.Notify(rank);
}

void Rendezvous::MakeParts() {
  parts_.resize(members_.size());
  std::map<int, std::vector<std::pair<int, int>>> by_color;  // (key, slot)
  for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) {
    const SplitKey& split = slots_[slot].split;
    if (split.color >= 0) by_color[split.color].push_back({split.key, slot});
  }
  for (auto& [color, order] : by_color) {
    std::sort(order.begin(), order.end());
    std::vector<int> ranks;
    for (const auto& [key, slot] : order) ranks.push_back(members_[slot]);
    const auto group =
        std::make_shared<GroupState>(group_.plane, calls_[order.front().second].label, ranks);
    for (int rank = 0; rank < static_cast<int>(order.size()); ++rank) {
      parts_[order[rank].second] = {group, rank};
    }
  }
}

std::string Rendezvous::WaitingFor(int slot) const {
  if (matched_) return DescribeWait(calls_[slot], group_.description, {}, {});
  return DescribeWait(calls_[slot], group_.description, RanksIn(SlotState::kEmpty),
                      RanksIn(SlotState::kWithdrawn));
}

std::vector<int> Rendezvous::RanksIn(SlotState state) const {
  std::vector<int> ranks;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].state == state) ranks.push_back(members_[slot]);
  }
  return ranks;
}

void Rendezvous::Help() {
  bool enter = false;
  scheduler_.Exclusive([&] {
    enter = !complete_ && !cancelled_;
    if (enter) ++helpers_;
  });
  if (!enter) return;
  absl::Status status;
  for (int64_t chunk = next_chunk_++; chunk < chunks_; chunk = next_chunk_++) {
    status = transfer_->Move(chunk);
    if (!status.ok()) break;
    if (++moved_chunks_ == chunks_) Complete();
  }
  --helpers_;
  if (!status.ok()) scheduler_.Stop(status);
}

void Rendezvous::Complete() {
  scheduler_.Exclusive([&] {
    complete_ = true;
    for (int rank : members_) scheduler_.Notify(rank);
  });
}

void Rendezvous::Cancel(int slot) {
  bool matched = false;
  scheduler_.Exclusive([&] {
    matched = matched_;
    if (!matched) slots_[slot].state = SlotState::kWithdrawn;
    cancelled_ = true;
  });
  if (!matched) return;
  next_chunk_ = chunks_;
  // Helpers never wait for anything, so this ends with their current chunks.
  while (helpers_ > 0) std::this_thread::yield();
}

}  // namespace sumonce::nccl

#include "comm/in_process/rendezvous.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"
#include "comm/errors.h"
#include "comm/in_process/group_state.h"
#include "comm/rank_list.h"

namespace sumonce {

Rendezvous::Rendezvous(Scheduler& scheduler, std::vector<int> members, std::string group)
    : scheduler_(scheduler),
      members_(std::move(members)),
      group_(std::move(group)),
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
  SUMONCE_RETURN_IF_ERROR(calls_.front().kind == CallKind::kSend ? CheckPeers() : CheckSame());
  Match();
  return absl::OkStatus();
}

absl::Status Rendezvous::CheckSame() const {
  int first_other = 0;
  int others = 0;
  for (int slot = 1; slot < static_cast<int>(calls_.size()); ++slot) {
    if (SameCall(calls_.front(), calls_[slot])) continue;
    if (++others == 1) first_other = slot;
  }
  return others == 0 ? absl::OkStatus() : Mismatch(0, first_other, others - 1);
}

absl::Status Rendezvous::CheckPeers() const {
  const Buffer& sent = calls_[0].in;
  const Buffer& received = calls_[1].out;
  if (sent.count == received.count && sent.dtype == received.dtype) return absl::OkStatus();
  return Mismatch(0, 1, 0);
}

absl::Status Rendezvous::Mismatch(int a, int b, int more) const {
  std::string message = absl::StrCat("rank ", members_[a], " calls ", Describe(calls_[a]),
                                     " while rank ", members_[b], " calls ", Describe(calls_[b]));
  if (more > 0) absl::StrAppend(&message, ", as ", more, " more differ from rank ", members_[a]);
  return CollectiveMismatchError(absl::StrCat(message, " on group ", group_));
}

void Rendezvous::Match() {
  matched_ = true;
  transfer_ = Transfer(calls_);
  if (calls_.front().kind == CallKind::kSplit) MakeParts();
  if (transfer_.chunks() == 0) complete_ = true;
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
    const auto group = std::make_shared<GroupState>(calls_[order.front().second].label, ranks);
    for (int rank = 0; rank < static_cast<int>(order.size()); ++rank) {
      parts_[order[rank].second] = {group, rank};
    }
  }
}

std::string Rendezvous::WaitingFor(int slot) const {
  const std::string call = absl::StrCat(Describe(calls_[slot]), " on ", group_, ":");
  if (matched_) return absl::StrCat(call, " its peers move the data");
  return absl::StrCat(call, RanksIn(SlotState::kEmpty, "missing"),
                      RanksIn(SlotState::kWithdrawn, "gave it up without waiting"));
}

std::string Rendezvous::RanksIn(SlotState state, const char* what) const {
  std::vector<int> ranks;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].state == state) ranks.push_back(members_[slot]);
  }
  return ranks.empty() ? "" : absl::StrCat(" ", RanksInWords(ranks), " ", what);
}

void Rendezvous::Help() {
  bool enter = false;
  scheduler_.Exclusive([&] {
    enter = !complete_ && !cancelled_;
    if (enter) ++helpers_;
  });
  if (!enter) return;
  const int64_t chunks = transfer_.chunks();
  for (int64_t chunk = next_chunk_++; chunk < chunks; chunk = next_chunk_++) {
    transfer_.Move(chunk);
    if (++moved_chunks_ == chunks) Complete();
  }
  --helpers_;
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
  next_chunk_ = transfer_.chunks();
  // Helpers never wait for anything, so this ends with their current chunks.
  while (helpers_ > 0) std::this_thread::yield();
}

}  // namespace sumonce

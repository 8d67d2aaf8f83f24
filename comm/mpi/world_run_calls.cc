// The calls of a run: come to, matched, moved, finished or given up.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"
#include "comm/mpi/world_run.h"
#include "comm/rank_list.h"

namespace sumonce {
namespace {

bool PeerToPeer(CallKind kind) { return kind == CallKind::kSend || kind == CallKind::kRecv; }

}  // namespace

GroupView::GroupView(std::string id, const std::string& name, std::vector<int> ranks, int own)
    : id(std::move(id)),
      world_ranks(std::move(ranks)),
      rank(own),
      description(absl::StrCat(name, " [", JoinRanks(world_ranks), "]")) {}

absl::StatusOr<CallKey> WorldRun::Start(const std::shared_ptr<GroupView>& group, Call call,
                                        SplitArguments split) {
  SUMONCE_RETURN_IF_ERROR(processes_.failure());
  if (const auto polled = processes_.Poll(); !polled.ok()) {
    processes_.Fail(polled.status());
    return polled.status();
  }
  SUMONCE_RETURN_IF_ERROR(stop_status_);
  CallKey key;
  std::vector<int> members = Place(*group, call, key);
  const int slot = key.slot;
  Meeting& meeting = meetings_[key];
  meeting.group = group;
  const size_t size = members.size();
  meeting.members = std::move(members);
  meeting.calls.resize(size);
  meeting.splits.resize(size);
  meeting.here.resize(size);
  meeting.gave_up.resize(size);
  CallFrame own{.to = key, .from_slot = slot, .call = std::move(call), .split = split};
  for (size_t other = 0; other < size; ++other) {
    if (static_cast<int>(other) == slot) continue;
    own.to.slot = static_cast<int>(other);
    ByteWriter frame = Begin(FrameKind::kCall);
    WriteCall(own, frame);
    PostCounted(meeting.members[other], std::move(frame));
  }
  absl::Status status = Arrive(key, meeting, own);
  if (const auto early = early_.find(key); early != early_.end()) {
    const std::vector<Frame> frames = std::move(early->second);
    early_.erase(early);
    for (const Frame& frame : frames) {
      if (!status.ok()) break;
      status = frame.kind == FrameKind::kData ? OnData(frame) : OnCall(frame);
    }
  }
  if (!status.ok()) {
    meetings_.erase(key);
    return status;
  }
  return key;
}

// Where a call belongs, and who meets there.
std::vector<int> WorldRun::Place(GroupView& group, const Call& call, CallKey& key) const {
  std::vector<int> members = group.world_ranks;
  key = {.stream = group.id, .number = 0, .slot = group.rank};
  if (PeerToPeer(call.kind)) {
    const bool sends = call.kind == CallKind::kSend;
    const int source = sends ? group.rank : call.root;
    const int target = sends ? call.root : group.rank;
    key = {.stream = absl::StrCat(group.id, " ", source, ">", target),
           .number = 0,
           .slot = sends ? 0 : 1};
    members = {group.world_ranks[source], group.world_ranks[target]};
  }
  key.number = group.calls[{key.stream, key.slot}]++;
  return members;
}

absl::Status WorldRun::OnCall(const Frame& frame) {
  SUMONCE_ASSIGN_OR_RETURN(CallFrame call, ReadCall(frame.body()));
  const auto found = meetings_.find(call.to);
  if (found == meetings_.end()) {
    early_[call.to].push_back(frame);
    return absl::OkStatus();
  }
  Meeting& meeting = found->second;
  if (call.from_slot >= static_cast<int>(meeting.members.size()))
    return absl::InternalError("mpi: a call from a slot that its group does not have");
  if (frame.kind == FrameKind::kWithdraw) {
    meeting.gave_up[call.from_slot] = true;
    return absl::OkStatus();
  }
  return Arrive(call.to, meeting, call);
}

absl::Status WorldRun::Arrive(const CallKey& key, Meeting& meeting, const CallFrame& frame) {
  meeting.calls[frame.from_slot] = frame.call;
  meeting.splits[frame.from_slot] = frame.split;
  meeting.here[frame.from_slot] = true;
  const auto all = [](const std::vector<bool>& flags) {
    return std::all_of(flags.begin(), flags.end(), [](bool flag) { return flag; });
  };
  if (!all(meeting.here)) return absl::OkStatus();
  const bool given_up =
      std::find(meeting.gave_up.begin(), meeting.gave_up.end(), true) != meeting.gave_up.end();
  // What the library does must be done by all or none, and others may have begun.
  if (given_up && !Irrevocable(meeting.calls[key.slot])) return absl::OkStatus();
  return Match(key, meeting);
}

absl::Status WorldRun::Match(const CallKey& key, Meeting& meeting) {
  const absl::Status match = CheckMatch(meeting.calls, meeting.members, meeting.group->description);
  if (!match.ok()) {
    Stop(match);
    return absl::OkStatus();
  }
  // A stopped run moves no more data, but what the library cannot take back.
  const Call& own = meeting.calls[key.slot];
  if (!stop_status_.ok() && !Irrevocable(own)) return absl::OkStatus();
  meeting.matched = true;
  if (own.kind == CallKind::kSplit) {
    meeting.made = MakeGroup(key, meeting);
  } else if (Irrevocable(own)) {
    meeting.native = processes_.wire().Reduce(meeting.group->native, own);
    PollNative();
  } else if (HasPayload(own.kind)) {
    StartTransfer(key, meeting);
  }
  return absl::OkStatus();
}

// What the MPI library itself does, collectively.
bool WorldRun::Irrevocable(const Call& call) const {
  return options_.native_sums && (HasReduceOp(call.kind) || call.kind == CallKind::kSplit);
}

// Of a matched Split: this rank's group; null for a negative color.
std::shared_ptr<GroupView> WorldRun::MakeGroup(const CallKey& key, const Meeting& meeting) {
  const int color = meeting.splits[key.slot].color;
  if (color < 0) return nullptr;
  std::vector<std::pair<int, int>> order;  // (key, slot)
  for (size_t slot = 0; slot < meeting.splits.size(); ++slot) {
    if (meeting.splits[slot].color == color)
      order.emplace_back(meeting.splits[slot].key, static_cast<int>(slot));
  }
  std::sort(order.begin(), order.end());
  std::vector<int> ranks;
  int own = 0;
  for (const auto& [sort_key, slot] : order) {
    if (slot == key.slot) own = static_cast<int>(ranks.size());
    ranks.push_back(meeting.members[slot]);
  }
  const std::string id = absl::StrCat(meeting.group->id, "/", key.number, ":", color);
  auto group = std::make_shared<GroupView>(id, meeting.calls[order.front().second].label,
                                           std::move(ranks), own);
  if (options_.native_sums) group->native = processes_.wire().MakeGroup(id, group->world_ranks);
  return group;
}

void WorldRun::StartTransfer(const CallKey& key, Meeting& meeting) {
  const auto send = [this, key, members = meeting.members](int slot, SlicedTransfer::Phase phase,
                                                           std::string_view elements) {
    ByteWriter frame = Begin(FrameKind::kData);
    WriteData({.to = {key.stream, key.number, slot}, .from_slot = key.slot, .phase = phase}, frame);
    frame.Raw(elements.data(), elements.size());
    PostCounted(members[slot], std::move(frame));
  };
  meeting.transfer = std::make_unique<SlicedTransfer>(
      meeting.calls[key.slot], key.slot, static_cast<int>(meeting.members.size()), send);
  meeting.transfer->Start();
  // A peer that matched earlier has sent already.
  const auto early = early_.find(key);
  if (early == early_.end()) return;
  const std::vector<Frame> frames = std::move(early->second);
  early_.erase(early);
  for (const Frame& frame : frames) {
    if (const absl::Status status = OnData(frame); !status.ok()) Stop(status);
  }
}

absl::Status WorldRun::OnData(const Frame& frame) {
  std::string_view elements = frame.body();
  SUMONCE_ASSIGN_OR_RETURN(const DataHead head, ReadData(elements));
  const auto found = meetings_.find(head.to);
  if (found == meetings_.end() || !found->second.transfer) {
    if (stop_status_.ok()) early_[head.to].push_back(frame);
    return absl::OkStatus();
  }
  return found->second.transfer->Take(head.from_slot,
                                      static_cast<SlicedTransfer::Phase>(head.phase), elements);
}

// What the library does moves no frames, and is not still.
bool WorldRun::InsideTheLibrary() const {
  return std::any_of(meetings_.begin(), meetings_.end(),
                     [](const auto& meeting) { return meeting.second.native != nullptr; });
}

void WorldRun::PollNative() {
  for (auto& [key, meeting] : meetings_) {
    if (meeting.native && meeting.native->Done()) meeting.native.reset();
  }
}

absl::Status WorldRun::Finish(const CallKey& key) {
  Meeting& meeting = meetings_.at(key);
  const auto ready = [&] {
    PollNative();
    return meeting.complete() || !stop_status_.ok();
  };
  absl::Status status = WaitFor(ready, [&] { return WaitingFor(key); });
  if (status.ok()) status = stop_status_;
  if (!status.ok()) {
    Cancel(key, meeting);
  } else {
    meetings_.erase(key);
  }
  return status;
}

absl::StatusOr<std::shared_ptr<GroupView>> WorldRun::FinishSplit(const CallKey& key) {
  Meeting& meeting = meetings_.at(key);
  const auto ready = [&] { return meeting.matched || !stop_status_.ok(); };
  SUMONCE_RETURN_IF_ERROR(WaitFor(ready, [&] { return WaitingFor(key); }));
  SUMONCE_RETURN_IF_ERROR(stop_status_);
  std::shared_ptr<GroupView> group = std::move(meeting.made);
  meetings_.erase(key);
  return group;
}

void WorldRun::Drop(const CallKey& key) {
  Meeting& meeting = meetings_.at(key);
  if (meeting.matched && processes_.failure().ok()) {
    (void)Finish(key);
    return;
  }
  CallFrame own{.to = key, .from_slot = key.slot, .call = meeting.calls[key.slot], .split = {}};
  for (size_t other = 0; other < meeting.members.size(); ++other) {
    if (static_cast<int>(other) == key.slot) continue;
    own.to.slot = static_cast<int>(other);
    ByteWriter frame = Begin(FrameKind::kWithdraw);
    WriteCall(own, frame);
    PostCounted(meeting.members[other], std::move(frame));
  }
  Cancel(key, meeting);
}

// After this nobody touches the call's buffers.
void WorldRun::Cancel(const CallKey& key, Meeting& meeting) {
  Call& own = meeting.calls[key.slot];
  if (!Irrevocable(own)) {
    meetings_.erase(key);
    return;
  }
  if (meeting.native) {
    const auto done = [&] {
      PollNative();
      return meeting.native == nullptr;
    };
    (void)WaitFor(done, [&] { return WaitingFor(key); });
    // A library that is held up by a lost process never lets go of the buffers.
    if (meeting.native) (void)meeting.native.release();
    return;
  }
  const auto keep = [](Buffer& buffer, std::vector<char>& storage) {
    storage.resize(std::max<int64_t>(buffer.bytes(), 1));
    if (buffer.bytes() > 0) std::memcpy(storage.data(), buffer.data, buffer.bytes());
    buffer.data = storage.data();
  };
  keep(own.in, meeting.own_in);
  keep(own.out, meeting.own_out);
}

std::string WorldRun::WaitingFor(const CallKey& key) const {
  const Meeting& meeting = meetings_.at(key);
  std::vector<int> missing;
  std::vector<int> gave_up;
  for (size_t slot = 0; slot < meeting.members.size(); ++slot) {
    if (meeting.gave_up[slot]) {
      gave_up.push_back(meeting.members[slot]);
    } else if (!meeting.here[slot]) {
      missing.push_back(meeting.members[slot]);
    }
  }
  return DescribeWait(meeting.calls[key.slot], meeting.group->description, missing, gave_up);
}

void WorldRun::PostCounted(int to, ByteWriter frame) {
  ++sent_;
  processes_.Post(to, std::move(frame));
}

}  // namespace sumonce

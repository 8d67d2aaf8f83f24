#include "comm/nccl/nccl_plane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"
#include "comm/nccl/rendezvous_communicator.h"

namespace sumonce::nccl {
// The communicators of a group's ranks, by rank.
class NcclPlane::GroupComms : public GroupResources {
 public:
  GroupComms(NcclPlane& plane, const GroupState& group, std::vector<Comm> comms)
      : plane_(plane), group_(group), comms_(std::move(comms)) {}
  ~GroupComms() override { plane_.Release(group_, comms_); }
  Comm at(int rank) const { return comms_[rank]; }

 private:
  NcclPlane& plane_;
  const GroupState& group_;
  std::vector<Comm> comms_;
};

class NcclPlane::PieceTransfer : public Transfer {
 public:
  PieceTransfer(NcclPlane& plane, const MatchedCall& call) : plane_(plane), call_(call) {}
  int64_t chunks() const override {
    return PiecesOf(call_.calls.front(), call_.group.size()).number();
  }
  absl::Status Move(int64_t chunk) override { return plane_.Move(call_, chunk); }

 private:
  NcclPlane& plane_;
  MatchedCall call_;
};

class NcclPlane::SplitTransfer : public Transfer {
 public:
  SplitTransfer(NcclPlane& plane, const MatchedCall& call) : plane_(plane), call_(call) {}
  int64_t chunks() const override { return 1; }
  absl::Status Move(int64_t) override { return plane_.Split(call_); }

 private:
  NcclPlane& plane_;
  MatchedCall call_;
};

Communicator::Properties NcclPlane::properties() const {
  return {.transport = options_.transport, .ordered_sums = !options_.native_sums};
}

// A Barrier is over when all have come: they meet in memory, with nothing left in any stream.
std::unique_ptr<Transfer> NcclPlane::Prepare(const MatchedCall& call) {
  const CallKind kind = call.calls.front().kind;
  if (kind == CallKind::kSplit) return std::make_unique<SplitTransfer>(*this, call);
  if (!HasPayload(kind)) return nullptr;
  return std::make_unique<PieceTransfer>(*this, call);
}

absl::Status NcclPlane::Open(GroupState& world) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Outcome(OpenLocked(world), "the start of " + world.description);
}

absl::Status NcclPlane::OpenLocked(GroupState& world) {
  int devices = 0;
  const DeviceRank nobody(api_, 0, 0);
  SUMONCE_RETURN_IF_ERROR(nobody.Cuda(api_.cuda.GetDeviceCount(&devices), "cudaGetDeviceCount"));
  if (devices < 1 || (world.size() > devices && !options_.share_devices)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(world.size(), " ranks need as many GPUs, and there are ", devices,
                     "; take a smaller mesh, or --comm fake_nccl, which needs none"));
  }
  for (int rank = 0; rank < world.size(); ++rank)
    ranks_.push_back(std::make_unique<DeviceRank>(api_, rank, rank % devices));
  for (const auto& rank : ranks_) SUMONCE_RETURN_IF_ERROR(rank->Open());
  return InitComms(world);
}

absl::Status NcclPlane::InitComms(GroupState& world) {
  UniqueId id;
  SUMONCE_RETURN_IF_ERROR(ranks_[0]->Nccl(api_.nccl.GetUniqueId(&id), "ncclGetUniqueId"));
  std::vector<Member> members;
  for (int rank = 0; rank < world.size(); ++rank)
    members.push_back({.device = ranks_[rank].get(), .rank = rank});
  // The handles are there at once, to be polled.
  SUMONCE_RETURN_IF_ERROR(InGroup(api_, members, limits(), [&](const Member& member) {
    Comm& comm = NewComm(*member.device);
    const int code = api_.nccl.CommInitRankNonBlocking(&comm, world.size(), id, member.rank);
    members[member.rank].comm = comm;
    return member.device->Nccl(code, "ncclCommInitRankConfig");
  }));
  std::vector<Comm> comms;
  for (const Member& member : members) comms.push_back(member.comm);
  Adopt(world, std::move(comms));
  return absl::OkStatus();
}

Comm& NcclPlane::NewComm(const DeviceRank& rank) {
  return live_.emplace_back(LiveComm{.world_rank = rank.world_rank()}).comm;
}

void NcclPlane::Adopt(GroupState& group, std::vector<Comm> comms) {
  group.resources = std::make_unique<GroupComms>(*this, group, std::move(comms));
}

std::vector<Member> NcclPlane::MembersOf(const MatchedCall& call) {
  const GroupComms& comms = static_cast<const GroupComms&>(*call.group.resources);
  std::vector<Member> members;
  for (size_t slot = 0; slot < call.calls.size(); ++slot) {
    int rank = static_cast<int>(slot);
    // Of a Send and its Recv each names the other.
    if (call.calls.front().kind == CallKind::kSend) rank = call.calls[1 - slot].root;
    members.push_back({.device = ranks_[call.group.world_ranks[rank]].get(),
                       .comm = comms.at(rank),
                       .rank = rank,
                       .call = &call.calls[slot]});
  }
  return members;
}

absl::Status NcclPlane::Move(const MatchedCall& call, int64_t piece) {
  const std::lock_guard<std::mutex> lock(mutex_);
  SUMONCE_RETURN_IF_ERROR(broken_);
  return Outcome(MovePiece(api_, OptionsFor(call.group), MembersOf(call), piece),
                 absl::StrCat(Describe(call.calls.front()), " on ", call.group.description));
}

absl::Status NcclPlane::Split(const MatchedCall& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  SUMONCE_RETURN_IF_ERROR(broken_);
  return Outcome(SplitLocked(call),
                 absl::StrCat(Describe(call.calls.front()), " of ", call.group.description));
}

absl::Status NcclPlane::SplitLocked(const MatchedCall& call) {
  const std::vector<Member> parents = MembersOf(call);
  std::vector<GroupState*> groups;  // a color is an index here
  std::vector<Comm*> made;
  SUMONCE_RETURN_IF_ERROR(InGroup(api_, parents, limits(), [&](const Member& parent) {
    const SplitPart& part = call.parts[parent.rank];
    int color = kNcclSplitNoColor;
    if (part.group != nullptr) {
      const auto found = std::find(groups.begin(), groups.end(), part.group.get());
      color = static_cast<int>(found - groups.begin());
      if (found == groups.end()) groups.push_back(part.group.get());
    }
    made.push_back(&NewComm(*parent.device));
    return parent.device->Nccl(api_.nccl.CommSplit(parent.comm, color, part.rank, made.back()),
                               "ncclCommSplit");
  }));
  // The parents have accepted: the handles are there, where there is a group.
  std::vector<Member> children = parents;
  for (size_t rank = 0; rank < children.size(); ++rank) children[rank].comm = *made[rank];
  live_.remove_if([](const LiveComm& live) { return live.comm == nullptr; });
  SUMONCE_RETURN_IF_ERROR(AwaitComms(api_, children, limits(), "into a group"));
  for (GroupState* group : groups) {
    std::vector<Comm> comms(group->size());
    for (const Member& child : children) {
      const SplitPart& part = call.parts[child.rank];
      if (part.group.get() == group) comms[part.rank] = child.comm;
    }
    Adopt(*group, std::move(comms));
  }
  return absl::OkStatus();
}

CollectiveOptions NcclPlane::OptionsFor(const GroupState& group) const {
  return {.group_size = group.size(), .native_sums = options_.native_sums, .limits = limits()};
}

absl::Status NcclPlane::Outcome(absl::Status status, const std::string& what) {
  if (status.ok()) return status;
  broken_ = Prefixed(status, absl::StrCat(options_.transport, ": ", what, ": "));
  // Kernels of ranks that wait for one another end; that an abort fails changes nothing any more.
  for (const LiveComm& live : live_) {
    if (live.comm != nullptr && ranks_[live.world_rank]->Enter().ok())
      api_.nccl.CommAbort(live.comm);
  }
  live_.clear();
  return broken_;
}

void NcclPlane::Release(const GroupState& group, const std::vector<Comm>& comms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!broken_.ok()) return;  // aborted, all of them
  std::vector<Member> members;
  for (int rank = 0; rank < static_cast<int>(comms.size()); ++rank) {
    members.push_back({.device = ranks_[group.world_ranks[rank]].get(), .comm = comms[rank]});
  }
  Outcome(Destroy(members), "the end of " + group.description).IgnoreError();  // Close returns it
}

absl::Status NcclPlane::Destroy(std::span<const Member> members) {
  SUMONCE_RETURN_IF_ERROR(InGroup(api_, members, limits(), [&](const Member& m) {
    return m.device->Nccl(api_.nccl.CommFinalize(m.comm), "ncclCommFinalize");
  }));
  for (const Member& member : members) {
    SUMONCE_RETURN_IF_ERROR(member.device->Enter());
    live_.remove_if([&](const LiveComm& live) { return live.comm == member.comm; });
    SUMONCE_RETURN_IF_ERROR(
        member.device->Nccl(api_.nccl.CommDestroy(member.comm), "ncclCommDestroy"));
  }
  return absl::OkStatus();
}

absl::Status NcclPlane::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  absl::Status closed;
  for (const auto& rank : ranks_) closed.Update(rank->Close(options_.time_limit_us));
  ranks_.clear();
  if (broken_.ok() && !closed.ok())
    broken_ = Prefixed(closed, absl::StrCat(options_.transport, ": the end of the run: "));
  return broken_;
}

absl::Status RunOnDevices(Api api, const PlaneOptions& plane_options, const RunOptions& options,
                          const RankBody& body) {
  NcclPlane plane(api, plane_options);
  SUMONCE_ASSIGN_OR_RETURN(std::shared_ptr<GroupState> world, MakeWorld(options, plane));
  absl::Status status = plane.Open(*world);
  if (status.ok()) status = RunRanks(options, world, body);
  world.reset();
  status.Update(plane.Close());
  return status;
}

}  // namespace sumonce::nccl

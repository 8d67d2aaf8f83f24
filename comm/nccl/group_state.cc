#include "comm/nccl/group_state.h"

#include "absl/strings/str_cat.h"
#include "comm/rank_list.h"

namespace sumonce::nccl {

GroupState::GroupState(DataPlane& plane, const std::string& name, std::vector<int> ranks)
    : plane(plane),
      world_ranks(std::move(ranks)),
      description(absl::StrCat(name, " [", JoinRanks(world_ranks), "]")),
      calls_made_(world_ranks.size(), 0) {}

std::pair<std::shared_ptr<Rendezvous>, int> GroupState::Next(Scheduler& scheduler, int rank,
                                                             const Call& call) {
  const bool peer_to_peer = call.kind == CallKind::kSend || call.kind == CallKind::kRecv;
  return peer_to_peer ? NextPeerToPeer(scheduler, rank, call) : NextCollective(scheduler, rank);
}

std::pair<std::shared_ptr<Rendezvous>, int> GroupState::NextCollective(Scheduler& scheduler,
                                                                       int rank) {
  const int64_t number = calls_made_[rank]++;
  Open& open = open_[number];
  if (open.point == nullptr)
    open.point = std::make_shared<Rendezvous>(scheduler, *this, world_ranks);
  std::shared_ptr<Rendezvous> point = open.point;
  if (++open.arrived == size()) open_.erase(number);
  return {point, rank};
}

std::pair<std::shared_ptr<Rendezvous>, int> GroupState::NextPeerToPeer(Scheduler& scheduler,
                                                                       int rank, const Call& call) {
  const bool sends = call.kind == CallKind::kSend;
  const int slot = sends ? 0 : 1;
  const std::pair<int, int> route = sends ? std::pair(rank, call.root) : std::pair(call.root, rank);
  std::deque<std::shared_ptr<Rendezvous>>& waiting = peer_to_peer_[route];
  if (!waiting.empty() && !waiting.front()->HasDeposit(slot)) {
    std::shared_ptr<Rendezvous> point = waiting.front();
    waiting.pop_front();
    return {point, slot};
  }
  const std::vector<int> members = {world_ranks[route.first], world_ranks[route.second]};
  waiting.push_back(std::make_shared<Rendezvous>(scheduler, *this, members));
  return {waiting.back(), slot};
}

}  // namespace sumonce::nccl

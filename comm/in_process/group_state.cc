#include "comm/in_process/group_state.h"

#include "absl/strings/str_cat.h"
#include "comm/rank_list.h"

namespace sumonce {
namespace {

Members NamedMembers(const std::string& name, std::vector<int> ranks) {
  std::string group = absl::StrCat(name, " [", JoinRanks(ranks), "]");
  return {std::move(ranks), std::move(group)};
}

}  // namespace

GroupState::GroupState(const std::string& name, std::vector<int> ranks)
    : collectives_(NamedMembers(name, std::move(ranks))), small_sums_(size()) {}

std::pair<Channel*, int> GroupState::ChannelOf(int rank, const Call& call) {
  if (call.kind == CallKind::kSend) return {&Route(rank, call.root), 0};
  if (call.kind == CallKind::kRecv) return {&Route(call.root, rank), 1};
  return {&collectives_, rank};
}

Channel& GroupState::Route(int source, int destination) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Channel>& route = routes_[{source, destination}];
  if (route == nullptr) {
    const std::vector<int>& ranks = world_ranks();
    route = std::make_unique<Channel>(
        Members{{ranks[source], ranks[destination]}, collectives_.members().group});
  }
  return *route;
}

}  // namespace sumonce

// What the members of one process group share: who they are, and the calls that wait for peers.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/nccl/data_plane.h"
#include "comm/nccl/rendezvous.h"

namespace sumonce::nccl {

struct GroupState {
  // The plane outlives the group.
  GroupState(DataPlane& plane, const std::string& name, std::vector<int> ranks);

  int size() const { return static_cast<int>(world_ranks.size()); }

  // In an Exclusive section: the meeting point of this rank's next call, and its slot there.
  std::pair<std::shared_ptr<Rendezvous>, int> Next(Scheduler& scheduler, int rank,
                                                   const Call& call);

  DataPlane& plane;
  const std::vector<int> world_ranks;         // by rank in the group
  const std::string description;              // "tp [0 1]"
  std::unique_ptr<GroupResources> resources;  // the plane's, from the Split that made the group on

 private:
  std::pair<std::shared_ptr<Rendezvous>, int> NextCollective(Scheduler& scheduler, int rank);
  std::pair<std::shared_ptr<Rendezvous>, int> NextPeerToPeer(Scheduler& scheduler, int rank,
                                                             const Call& call);

  std::vector<int64_t> calls_made_;  // collectives, by rank: members meet by this number
  struct Open {
    std::shared_ptr<Rendezvous> point;
    int arrived = 0;
  };
  std::map<int64_t, Open> open_;
  // By (source, destination): Sends without a Recv, or Recvs without a Send; never both.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Rendezvous>>> peer_to_peer_;
};

}  // namespace sumonce::nccl

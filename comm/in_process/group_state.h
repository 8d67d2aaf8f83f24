// What the members of one process group share: who they are, and the channels on which their calls
// meet.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/in_process/channel.h"
#include "comm/in_process/small_sums.h"

namespace sumonce {

struct GroupState {
  GroupState(const std::string& name, std::vector<int> ranks);

  int size() const { return static_cast<int>(world_ranks().size()); }
  const std::vector<int>& world_ranks() const { return collectives_.members().world_ranks; }

  const std::string& name() const { return collectives_.members().group; }  // "tp [0 1]"
  SmallSums& small_sums() { return small_sums_; }
  bool IsCollective(const Channel* channel) const { return channel == &collectives_; }

  // Where a call of `rank` meets its peers', and this rank's slot there.
  std::pair<Channel*, int> ChannelOf(int rank, const Call& call);

 private:
  Channel& Route(int source, int destination);

  Channel collectives_;
  SmallSums small_sums_;
  std::mutex mutex_;
  // By (source, destination), each made on its first message. Slot 0 sends, slot 1 receives.
  std::map<std::pair<int, int>, std::unique_ptr<Channel>> routes_;
};

}  // namespace sumonce

// How the data of calls that have met are moved.
//
// The matching is the same wherever the ranks live (comm/nccl/rendezvous.h): who calls what, who is
// missing, what a Split makes. What differs is who drives the devices: this process all of them, or
// every process its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"

namespace sumonce::nccl {

struct GroupState;
struct SplitPart;

// The data movement of one matched call, cut into chunks that any thread may move, each once, in
// any order, several at a time. Each element of an output is written by one chunk only, after that
// chunk has read all that it needs: so the order of chunks does not matter, in place or not.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual int64_t chunks() const = 0;
  // Never waits for another rank's thread. An error ends the run on every rank.
  virtual absl::Status Move(int64_t chunk) = 0;
};

// What a transport keeps for a group, released with the group.
class GroupResources {
 public:
  virtual ~GroupResources() = default;
};

// A call whose ranks have all come. Valid until the call is complete or taken back.
struct MatchedCall {
  GroupState& group;
  // By rank in the group; of a Send and its Recv these two, whose `root`s name each other.
  const std::vector<Call>& calls;
  const std::vector<SplitPart>& parts;  // of a Split: what it makes, by rank; else empty
};

// One run's. Used by all ranks.
class DataPlane {
 public:
  virtual ~DataPlane() = default;
  virtual Communicator::Properties properties() const = 0;
  // In an Exclusive section: quick. Null: nothing has to move, the call is complete.
  virtual std::unique_ptr<Transfer> Prepare(const MatchedCall& call) = 0;
};

}  // namespace sumonce::nccl

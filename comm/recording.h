// The calls that ranks make, as values: a wrapper over any communicator that notes every call on
// every group, for traces and counts. It changes no call; a Split is followed by one AllGather
// among the new group's members, by which they learn their world ranks.
//
// A CallRecorder serves all ranks of one run that live in this process; each rank writes its own
// part only, so ranks may be threads. Memory is bounded: beyond the limit calls are counted, not
// kept. Times come from the caller's clock and are in no result.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"

namespace sumonce {

struct RecordedGroup {
  // Equal on all members, and of this group alone: "world"; "world/3.0" is the part of the world's
  // fourth collective, a Split, whose first member is world rank 0.
  std::string id;
  std::string name;              // the label of the Split that made it
  std::vector<int> world_ranks;  // by rank in the group
};

struct RecordedCall {
  int group = 0;  // index into RankCalls::groups
  CallKind kind = CallKind::kBarrier;
  std::string label;
  int64_t count = 0;  // elements of the payload (Payload in comm/call_check.h)
  int64_t bytes = 0;
  DType dtype = DType::kFloat64;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  // Broadcast: the source; Send, Recv: the peer
  // Which of this rank's collectives on this group it is, from 0: the parts of one collective have
  // the same number on all members. Send, Recv: which of those to (from) this peer.
  // -1: Start refused it, so it met no peer.
  int64_t ordinal = 0;
  double start_us = 0;  // since the recorder was made
  double end_us = 0;    // when Wait returned
  // Position among all starts and ends of calls in this process: under fibers, the schedule.
  int64_t started = 0;
  int64_t ended = 0;
  absl::Status status;  // what Start or Wait returned; Cancelled: given up without waiting
};

// What one rank did, in the order in which it started its calls.
struct RankCalls {
  int rank = 0;  // in the world
  std::vector<RecordedGroup> groups;
  std::vector<RecordedCall> calls;
  int64_t dropped = 0;  // calls beyond the limit: made, not kept
};

struct RecorderOptions {
  std::function<double()> now_us;  // microseconds, never decreasing; called by all ranks
  std::optional<double> begin_us;  // the zero of recorded times; absent: now
  int64_t max_calls = 1 << 19;     // kept of all ranks together, in equal parts
};

class CallRecorder {
 public:
  CallRecorder(int world_size, RecorderOptions options);

  // The world of one rank, recorded; once per rank. Both `world` and the recorder outlive it.
  std::unique_ptr<Communicator> Wrap(Communicator& world);

  // When no rank runs any more. By world rank; ranks of other processes are empty.
  std::vector<RankCalls> Take() { return std::move(ranks_); }

 private:
  friend class RankRecord;
  std::vector<RankCalls> ranks_;
  std::function<double()> now_us_;
  double begin_us_;
  int64_t max_calls_per_rank_;
  std::atomic<int64_t> position_ = 0;
};

}  // namespace sumonce

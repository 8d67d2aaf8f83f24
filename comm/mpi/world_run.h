// One run as one process sees it: the calls that its rank has come to, what its peers have said of
// theirs, and, on process 0, the referee.
//
// A call is matched when the frames of all its members have come; every member compares them
// (comm/call_check.h) and so comes to the same result. Only then does data move.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi/frame.h"
#include "comm/mpi/processes.h"
#include "comm/mpi/referee.h"
#include "comm/mpi/sliced_transfer.h"
#include "comm/transport.h"

namespace sumonce {

// One rank's view of a group.
struct GroupView {
  GroupView(std::string id, const std::string& name, std::vector<int> ranks, int own);

  int size() const { return static_cast<int>(world_ranks.size()); }

  const std::string id;  // the same on all members, and no other group's: how it was split off
  const std::vector<int> world_ranks;
  const int rank;                                        // of this process
  const std::string description;                         // "tp [0 1]"
  int native = -1;                                       // of Wire::MakeGroup
  std::map<std::pair<std::string, int>, int64_t> calls;  // so far, by stream and slot
};

class WorldRun {
 public:
  WorldRun(Processes& processes, const RunOptions& options);
  ~WorldRun();

  // Collective over the processes; those beyond the world only wait for its end. The result is the
  // same on all.
  absl::Status Execute(const RankBody& body);

  // What a communicator needs. A call is named by its key from Start until Finish or Drop.
  absl::StatusOr<CallKey> Start(const std::shared_ptr<GroupView>& group, Call call,
                                SplitArguments split);
  absl::Status Finish(const CallKey& key);  // waits; the call is over in any case
  void Drop(const CallKey& key);            // nobody waits for it: taken back, or seen through
  // Of a Split: its group, null for a negative color.
  absl::StatusOr<std::shared_ptr<GroupView>> FinishSplit(const CallKey& key);
  void Stop(const absl::Status& status);
  bool native_sums() const { return options_.native_sums; }

 private:
  // A call that this rank has come to.
  struct Meeting {
    std::shared_ptr<GroupView> group;
    std::vector<int> members;  // world ranks, by slot
    std::vector<Call> calls;
    std::vector<SplitArguments> splits;
    std::vector<bool> here;
    std::vector<bool> gave_up;
    bool matched = false;
    std::unique_ptr<SlicedTransfer> transfer;
    std::unique_ptr<NativeReduction> native;
    std::shared_ptr<GroupView> made;  // by a Split
    // Native sums: of a call that was given up here, but that the peers may count on.
    std::vector<char> own_in, own_out;

    bool complete() const { return matched && !native && (!transfer || transfer->complete()); }
  };

  absl::Status RunBodyToItsEnd(const RankBody& body);
  absl::Status AwaitEnd();
  absl::Status Flush();
  absl::Status OnFrame(int from, const Frame& frame);
  absl::Status OnRefereeFrame(int from, const Frame& frame);
  absl::Status OnCall(const Frame& frame);
  absl::Status OnData(const Frame& frame);
  void OnProbe(int64_t wave);
  absl::Status Arrive(const CallKey& key, Meeting& meeting, const CallFrame& frame);
  absl::Status Match(const CallKey& key, Meeting& meeting);
  void StartTransfer(const CallKey& key, Meeting& meeting);
  bool Irrevocable(const Call& call) const;
  std::shared_ptr<GroupView> MakeGroup(const CallKey& key, const Meeting& meeting);
  std::vector<int> Place(GroupView& group, const Call& call, CallKey& key) const;
  void PollNative();
  bool InsideTheLibrary() const;
  void Cancel(const CallKey& key, Meeting& meeting);
  absl::Status WaitFor(const std::function<bool()>& ready,
                       const std::function<std::string()>& waiting_for);
  absl::Status OnSilence();
  void Nudge(double idle_s);
  std::string WaitingFor(const CallKey& key) const;
  void PostCounted(int to, ByteWriter frame);
  void ToReferee(ByteWriter frame) { processes_.Post(0, std::move(frame)); }
  void LocalStop(const absl::Status& status);
  ByteWriter Begin(FrameKind kind) const { return BeginFrame(kind, run_); }
  bool in_world() const { return processes_.rank() < options_.world_size; }

  Processes& processes_;
  RunOptions options_;
  int64_t run_ = 0;
  std::map<CallKey, Meeting> meetings_;
  std::map<CallKey, std::vector<Frame>> early_;  // of calls that this rank has not come to
  std::unique_ptr<Referee> referee_;             // on process 0

  absl::Status stop_status_;
  std::optional<absl::Status> end_;
  int flushed_ = 0;
  bool finished_ = false;
  const std::function<bool()>* ready_ = nullptr;  // while this rank waits
  const std::function<std::string()>* waiting_for_ = nullptr;
  int64_t sent_ = 0;
  int64_t received_ = 0;
  int64_t waits_ = 0;
  int64_t nudged_at_ = -1;  // waits_ + received_ when it last said that it is blocked
};

}  // namespace sumonce

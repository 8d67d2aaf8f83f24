// This process's rank, of a run with a rank in each process: its device, its communicators, and the
// thread that carries out process 0's orders on them (comm/nccl/process_protocol.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/nccl/device_collective.h"
#include "comm/nccl/nccl_plane.h"
#include "comm/nccl/process_protocol.h"
#include "comm/nccl/wire.h"
#include "comm/tcp_process_group.h"

namespace sumonce::nccl {

class ProcessRank {
 public:
  // The links outlive it; so do the tables.
  ProcessRank(Api api, const PlaneOptions& options, TcpProcessGroup& processes, int device);
  ~ProcessRank();

  // One question to the proxy; the answer. When the run is over, the run's status for ever.
  // RankLostError if process 0 is gone.
  absl::StatusOr<Reader> Asked(const Writer& question);
  // Of questions that are answered with a status only.
  absl::Status AskedStatus(const Writer& question);

  // The rank's body has returned `mine`: waits for all others; what the run ended with.
  absl::Status Finish(const absl::Status& mine);

  // The calls whose buffers orders may name, from Start until they are over.
  int64_t AddWork(const Call& call);
  void RemoveWork(int64_t work);

  const PlaneOptions& options() const { return options_; }

 private:
  struct GroupOfRank {
    Comm comm = nullptr;
    int rank = 0;
    int size = 0;
  };

  void CarryOutOrders();
  absl::Status CarryOut(Order order, Reader& message);
  absl::Status Init(Reader& message);
  absl::Status Move(Reader& message);
  absl::Status Split(Reader& message);
  absl::Status Release(Reader& message);
  absl::Status Close();
  void AbortAll();
  WaitLimits Limits() const;
  Member MemberOf(const GroupOfRank& group, const Call* call) const;

  const Api api_;
  const PlaneOptions options_;
  TcpProcessGroup& processes_;
  Socket& asks_;
  Socket& orders_;
  DeviceRank device_;
  absl::Status over_;  // of the rank: what the run ended with
  bool is_over_ = false;
  std::map<int64_t, GroupOfRank> groups_;  // of the thread
  GroupOfRank nowhere_;                    // of a Split that gave this rank no group
  bool broken_ = false;                    // of the thread: communicators are aborted
  std::mutex mutex_;                       // guards works_
  std::map<int64_t, Call> works_;
  int64_t next_work_ = 0;
  std::thread thread_;
};

// The rank's handle on one group.
class ProcessCommunicator : public Communicator {
 public:
  ProcessCommunicator(ProcessRank& process, int64_t group, int rank, int size)
      : process_(process), group_(group), rank_(rank), size_(size) {}
  ~ProcessCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Properties properties() const override;
  absl::StatusOr<std::unique_ptr<Work>> Start(Call call) override;
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      std::string_view label) override;
  void Abort(absl::Status status) override;

 private:
  ProcessRank& process_;
  int64_t group_;
  int rank_;
  int size_;
};

}  // namespace sumonce::nccl

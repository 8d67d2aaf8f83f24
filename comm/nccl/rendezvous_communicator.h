// The communicator of transports whose ranks' calls meet in one process, under either executor: it
// matches them, and the transport's data plane moves what they carry.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/executor.h"
#include "comm/nccl/group_state.h"
#include "comm/transport.h"

namespace sumonce::nccl {

class RendezvousCommunicator : public Communicator {
 public:
  // `rank` in the group; the scheduler outlives all communicators of its run.
  RendezvousCommunicator(Scheduler& scheduler, std::shared_ptr<GroupState> group, int rank)
      : scheduler_(scheduler), group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  Properties properties() const override { return group_->plane.properties(); }

  absl::StatusOr<std::unique_ptr<Work>> Start(Call call) override;
  // For calls whose buffers have been looked at where they lie: in another process.
  absl::StatusOr<std::unique_ptr<Work>> StartChecked(Call call);
  const GroupState& group() const { return *group_; }
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      std::string_view label) override;
  void Abort(absl::Status status) override;

 private:
  struct Place {
    std::shared_ptr<Rendezvous> point;
    int slot = 0;
  };
  absl::StatusOr<Place> Deposit(Call call, SplitKey split);
  int world_rank() const { return group_->world_ranks[rank_]; }

  Scheduler& scheduler_;
  std::shared_ptr<GroupState> group_;
  int rank_;
};

// Runs the body on every rank, all in this process, with communicators over `world` (all ranks).
absl::Status RunRanks(const RunOptions& options, std::shared_ptr<GroupState> world,
                      const RankBody& body);
// The world of `options`, InvalidArgument if it has no rank.
absl::StatusOr<std::shared_ptr<GroupState>> MakeWorld(const RunOptions& options, DataPlane& plane);

}  // namespace sumonce::nccl

// The communicator between ranks of one process: calls meet in memory, under either executor. Sums
// run in ascending rank order (comm/reduce.h), or as the ranks come where that was asked for.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/executor.h"
#include "comm/in_process/deposit.h"
#include "comm/in_process/group_state.h"
#include "comm/transport.h"

namespace sumonce {

class InProcessCommunicator : public Communicator {
 public:
  // `rank` in the group; the scheduler outlives all communicators of its run. `ordered_sums`:
  // else terms are added as the ranks come.
  InProcessCommunicator(Scheduler& scheduler, std::shared_ptr<GroupState> group, int rank,
                        bool ordered_sums)
      : scheduler_(scheduler), group_(std::move(group)), rank_(rank), ordered_sums_(ordered_sums) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  Properties properties() const override {
    return {.transport = "in_process", .ordered_sums = ordered_sums_};
  }

  absl::StatusOr<std::unique_ptr<Work>> Start(Call call) override;
  absl::Status Run(Call call) override;
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      std::string_view label) override;
  void Abort(absl::Status status) override;

 private:
  class InProcessWork;

  absl::StatusOr<std::unique_ptr<InProcessWork>> Enter(Call&& call, SplitKey split,
                                                       bool has_posted = false);
  std::vector<int> WorldRanks(std::vector<int> slots) const;
  int world_rank() const { return group_->world_ranks()[rank_]; }
  absl::Status StopStatus() const;

  Scheduler& scheduler_;
  std::shared_ptr<GroupState> group_;
  int rank_;
  bool ordered_sums_;
};

// Transport::run of "in_process".
absl::Status RunInProcess(const RunOptions& options, const RankBody& body);

}  // namespace sumonce

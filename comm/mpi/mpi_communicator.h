// A rank's handle on a group of processes (contract: comm/communicator.h). Sums run in ascending
// rank order, by slices (comm/mpi/sliced_transfer.h), unless the run asked for the library's own.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/mpi/world_run.h"

namespace sumonce {

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(WorldRun& run, std::shared_ptr<GroupView> group)
      : run_(run), group_(std::move(group)) {}

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size(); }
  Properties properties() const override {
    return {.transport = "mpi", .ordered_sums = !run_.native_sums()};
  }

  absl::StatusOr<std::unique_ptr<Work>> Start(Call call) override;
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      std::string_view label) override;
  void Abort(absl::Status status) override;

 private:
  WorldRun& run_;
  std::shared_ptr<GroupView> group_;
};

}  // namespace sumonce

// The processes that one launcher started (mpirun, torchrun), one rank each: where this one stands
// among them, and a channel beside the ranks' own collectives for what the program itself has to
// tell: short messages, in order.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sumonce {

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective: `message` of process 0 arrives in every other's.
  virtual absl::Status Broadcast(std::string& message) = 0;
  // To process 0, which receives from each process in the order in which that one sent.
  virtual absl::Status SendToRoot(const std::string& message) = 0;
  virtual absl::StatusOr<std::string> ReceiveFrom(int rank) = 0;

  // How long nothing may come before whoever is waited for counts as lost. 60 at first.
  virtual void SetTimeLimit(double seconds) = 0;
  // Which process that is, for a person: "MPI rank 3 (host a, pid 77)".
  virtual std::string Describe(int rank) const = 0;

  // Every call above ends: with RankLostError, naming the process, when one has ended or has been
  // silent for longer than the group's time limit. After that the group is of no more use, and this
  // says why.
  virtual const absl::Status& failure() const = 0;
};

}  // namespace sumonce

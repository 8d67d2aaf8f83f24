#include "comm/mpi/mpi_communicator.h"

#include <utility>

#include "base/status.h"
#include "comm/call_check.h"

namespace sumonce {
namespace {

class MpiWork : public Work {
 public:
  MpiWork(WorldRun& run, CallKey key) : run_(run), key_(std::move(key)) {}
  ~MpiWork() override {
    if (!waited_) run_.Drop(key_);
  }
  absl::Status Wait() override {
    if (waited_) return absl::FailedPreconditionError("a Work is waited for once");
    waited_ = true;
    return run_.Finish(key_);
  }

 private:
  WorldRun& run_;
  CallKey key_;
  bool waited_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Work>> MpiCommunicator::Start(Call call) {
  SUMONCE_RETURN_IF_ERROR(CheckCall(call, rank(), size()));
  SUMONCE_ASSIGN_OR_RETURN(CallKey key, run_.Start(group_, std::move(call), {}));
  return std::make_unique<MpiWork>(run_, std::move(key));
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiCommunicator::Split(int color, int key,
                                                                     std::string_view label) {
  SUMONCE_ASSIGN_OR_RETURN(
      const CallKey place,
      run_.Start(group_, {.kind = CallKind::kSplit, .label = std::string(label)}, {color, key}));
  SUMONCE_ASSIGN_OR_RETURN(std::shared_ptr<GroupView> group, run_.FinishSplit(place));
  if (group == nullptr) return std::unique_ptr<Communicator>();
  return std::make_unique<MpiCommunicator>(run_, std::move(group));
}

void MpiCommunicator::Abort(absl::Status status) {
  run_.Stop(status.ok() ? absl::AbortedError("aborted without a reason") : std::move(status));
}

}  // namespace sumonce

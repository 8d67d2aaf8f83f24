#include "comm/in_process/in_process_communicator.h"

#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"

namespace sumonce {

class InProcessCommunicator::InProcessWork : public Work {
 public:
  InProcessWork(Scheduler& scheduler, int world_rank, Channel& channel, int slot)
      : scheduler_(scheduler),
        world_rank_(world_rank),
        channel_(channel),
        slot_(slot),
        point_(channel.Next(slot)) {}
  ~InProcessWork() override;

  absl::Status Enter(Call&& call, SplitKey split);
  absl::Status Wait() override;
  SplitPart TakePart() { return point_.TakePart(slot_); }

 private:
  absl::Status WaitUntil(const std::function<bool()>& ready);
  void WakeMembers();

  Scheduler& scheduler_;
  const int world_rank_;
  Channel& channel_;
  const int slot_;
  Rendezvous& point_;
  bool waited_ = false;
};

// Nobody waits for the result, but peers may use the buffers: see them through, or take them back.
InProcessCommunicator::InProcessWork::~InProcessWork() {
  if (!waited_ && point_.SeeThrough(slot_)) WakeMembers();
  channel_.Leave(slot_, point_);
}

absl::Status InProcessCommunicator::InProcessWork::Enter(Call&& call, SplitKey split) {
  SUMONCE_RETURN_IF_ERROR(point_.Enter(slot_, std::move(call), split));
  if (point_.matched()) WakeMembers();
  return absl::OkStatus();
}

absl::Status InProcessCommunicator::InProcessWork::Wait() {
  if (waited_) return absl::FailedPreconditionError("a Work is waited for once");
  waited_ = true;
  absl::Status status = WaitUntil([this] { return point_.matched(); });
  if (status.ok() && !point_.complete()) {
    if (point_.Help(slot_)) {
      WakeMembers();
    } else {
      status = WaitUntil([this] { return point_.complete(); });
    }
  }
  if (!status.ok()) point_.Abandon(slot_);
  return status;
}

absl::Status InProcessCommunicator::InProcessWork::WaitUntil(const std::function<bool()>& ready) {
  if (scheduler_.Spin(ready) && !scheduler_.Stopped()) return absl::OkStatus();
  return scheduler_.WaitUntil(world_rank_, ready, [this] { return point_.WaitingFor(slot_); });
}

void InProcessCommunicator::InProcessWork::WakeMembers() {
  if (!scheduler_.AnyWaiting()) return;
  scheduler_.Exclusive([this] {
    for (int rank : channel_.members().world_ranks) scheduler_.Notify(rank);
  });
}

absl::StatusOr<std::unique_ptr<Work>> InProcessCommunicator::Start(Call call) {
  SUMONCE_RETURN_IF_ERROR(CheckCall(call, rank_, size()));
  call.any_order |= !ordered_sums_;
  return Enter(std::move(call), {});
}

absl::StatusOr<std::unique_ptr<InProcessCommunicator::InProcessWork>> InProcessCommunicator::Enter(
    Call&& call, SplitKey split) {
  if (scheduler_.Stopped()) return StopStatus();
  const auto [channel, slot] = group_->ChannelOf(rank_, call);
  auto work = std::make_unique<InProcessWork>(scheduler_, world_rank(), *channel, slot);
  const absl::Status match = work->Enter(std::move(call), split);
  if (!match.ok()) scheduler_.Stop(match);  // every rank's Wait returns it, this one's too
  return work;
}

absl::Status InProcessCommunicator::StopStatus() const {
  absl::Status status;
  scheduler_.Exclusive([&] { status = scheduler_.StopStatus(); });
  return status;
}

absl::StatusOr<std::unique_ptr<Communicator>> InProcessCommunicator::Split(int color, int key,
                                                                           std::string_view label) {
  SUMONCE_ASSIGN_OR_RETURN(
      const std::unique_ptr<InProcessWork> work,
      Enter({.kind = CallKind::kSplit, .label = std::string(label)}, {color, key}));
  SUMONCE_RETURN_IF_ERROR(work->Wait());
  const SplitPart part = work->TakePart();
  if (part.group == nullptr) return std::unique_ptr<Communicator>();
  return std::make_unique<InProcessCommunicator>(scheduler_, part.group, part.rank, ordered_sums_);
}

void InProcessCommunicator::Abort(absl::Status status) {
  scheduler_.Stop(status.ok() ? absl::AbortedError("aborted without a reason") : std::move(status));
}

absl::Status RunInProcess(const RunOptions& options, const RankBody& body) {
  if (options.world_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("in_process: world of ", options.world_size, " ranks, expected at least 1"));
  }
  std::vector<int> ranks(options.world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto world = std::make_shared<GroupState>("world", std::move(ranks));
  return RunOnExecutor(options.executor, options.world_size, [&](int rank, Scheduler& scheduler) {
    InProcessCommunicator communicator(scheduler, world, rank, !options.native_sums);
    return body(communicator);
  });
}

}  // namespace sumonce

#include "comm/in_process/in_process_communicator.h"

#include <exception>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"

namespace sumonce {
namespace {

absl::Status WaitFor(Scheduler& scheduler, int world_rank, const std::function<bool()>& ready,
                     const std::function<std::string()>& waiting_for) {
  if (scheduler.Spin(ready) && !scheduler.Stopped()) return absl::OkStatus();
  return scheduler.WaitUntil(world_rank, ready, waiting_for);
}

void Wake(Scheduler& scheduler, const std::vector<int>& world_ranks) {
  if (!scheduler.AnyWaiting()) return;
  scheduler.Exclusive([&] {
    for (int rank : world_ranks) scheduler.Notify(rank);
  });
}

}  // namespace

class InProcessCommunicator::InProcessWork : public Work {
 public:
  // `marks` are told of its begin and end; null for a call that has posted, or is between two.
  InProcessWork(Scheduler& scheduler, int world_rank, Channel& channel, int slot, SmallSums* marks)
      : scheduler_(scheduler),
        world_rank_(world_rank),
        channel_(channel),
        slot_(slot),
        marks_(marks),
        point_(channel.Next(slot)) {
    if (marks_ == nullptr) return;
    number_ = marks_->BeginAtChannel(slot_);
    if (marks_->AnyPosted(slot_, number_)) WakeMembers();
  }
  ~InProcessWork() override;

  absl::Status Enter(Call&& call, SplitKey split);
  absl::Status Wait() override;
  SplitPart TakePart() { return point_.TakePart(slot_); }

 private:
  absl::Status WaitUntil(const std::function<bool()>& ready) {
    return WaitFor(scheduler_, world_rank_, ready, [this] { return point_.WaitingFor(slot_); });
  }
  void WakeMembers() { Wake(scheduler_, channel_.members().world_ranks); }

  Scheduler& scheduler_;
  const int world_rank_;
  Channel& channel_;
  const int slot_;
  SmallSums* const marks_;
  Rendezvous& point_;
  int64_t number_ = 0;  // of a marked call
  bool waited_ = false;
};

// Nobody waits for the result, but peers may use the buffers: see them through, or take them back.
// Peers that have posted for the call have come, and are on their way to the channel.
InProcessCommunicator::InProcessWork::~InProcessWork() {
  if (!waited_) {
    if (marks_ != nullptr && std::uncaught_exceptions() == 0 && point_.open() &&
        marks_->AllCame(slot_, number_))
      WaitUntil([this] { return !point_.open(); }).IgnoreError();
    point_.SeeThrough(slot_);
    WakeMembers();
  }
  channel_.Leave(slot_, point_);
  if (marks_ != nullptr) marks_->EndAtChannel(slot_, waited_);
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

absl::StatusOr<std::unique_ptr<Work>> InProcessCommunicator::Start(Call call) {
  SUMONCE_RETURN_IF_ERROR(CheckCall(call, rank_, size()));
  call.any_order |= !ordered_sums_;
  return Enter(std::move(call), {});
}

absl::StatusOr<std::unique_ptr<InProcessCommunicator::InProcessWork>> InProcessCommunicator::Enter(
    Call&& call, SplitKey split, bool has_posted) {
  if (scheduler_.Stopped()) return StopStatus();
  const auto [channel, slot] = group_->ChannelOf(rank_, call);
  SmallSums* const marks =
      has_posted || !group_->IsCollective(channel) ? nullptr : &group_->small_sums();
  auto work = std::make_unique<InProcessWork>(scheduler_, world_rank(), *channel, slot, marks);
  const absl::Status match = work->Enter(std::move(call), split);
  if (!match.ok()) scheduler_.Stop(match);  // every rank's Wait returns it, this one's too
  return work;
}

absl::Status InProcessCommunicator::Run(Call call) {
  SmallSums& sums = group_->small_sums();
  if (!ordered_sums_ || !sums.Takes(rank_, call)) return Communicator::Run(std::move(call));
  SUMONCE_RETURN_IF_ERROR(CheckCall(call, rank_, size()));
  // Also what keeps a rank that ignores a stop from posting over what its peers still read.
  if (scheduler_.Stopped()) return StopStatus();
  using State = SmallSums::State;
  sums.Post(rank_, call);
  // The last to post finds all posts there; nobody else's can make a peer go on.
  if (sums.Look(rank_) != State::kWaiting) Wake(scheduler_, group_->world_ranks());
  SUMONCE_RETURN_IF_ERROR(WaitFor(
      scheduler_, world_rank(),
      [this] { return group_->small_sums().Look(rank_) != State::kWaiting; },
      [this, &call] {
        const std::vector<int> missing = group_->small_sums().Missing(rank_);
        return DescribeWait(call, group_->name(), WorldRanks(missing), {});
      }));
  if (sums.Look(rank_) == State::kPosted) {
    sums.Sum(rank_, call);
    return absl::OkStatus();
  }
  SUMONCE_ASSIGN_OR_RETURN(const auto work, Enter(std::move(call), {}, true));
  return work->Wait();
}

std::vector<int> InProcessCommunicator::WorldRanks(std::vector<int> slots) const {
  for (int& slot : slots) slot = group_->world_ranks()[slot];
  return slots;
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

#include "comm/nccl/rendezvous_communicator.h"

#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"

namespace sumonce::nccl {
namespace {

class RendezvousWork : public Work {
 public:
  RendezvousWork(Scheduler& scheduler, int world_rank, std::shared_ptr<Rendezvous> point, int slot)
      : scheduler_(scheduler), world_rank_(world_rank), point_(std::move(point)), slot_(slot) {}
  ~RendezvousWork() override;
  absl::Status Wait() override;

 private:
  absl::Status WaitUntil(bool (Rendezvous::*reached)() const);
  bool Is(bool (Rendezvous::*reached)() const);

  Scheduler& scheduler_;
  int world_rank_;
  std::shared_ptr<Rendezvous> point_;
  int slot_;
  bool waited_ = false;
};

// Nobody waits for the result, but peers may use the buffers: see them through, or take them back.
RendezvousWork::~RendezvousWork() {
  if (waited_) return;
  if (Is(&Rendezvous::matched)) point_->Help();
  point_->Cancel(slot_);
}

absl::Status RendezvousWork::Wait() {
  if (waited_) return absl::FailedPreconditionError("a Work is waited for once");
  waited_ = true;
  absl::Status status = WaitUntil(&Rendezvous::matched);
  if (status.ok()) {
    point_->Help();
    if (Is(&Rendezvous::complete)) return absl::OkStatus();
    status = WaitUntil(&Rendezvous::complete);
  }
  if (!status.ok()) point_->Cancel(slot_);
  return status;
}

absl::Status RendezvousWork::WaitUntil(bool (Rendezvous::*reached)() const) {
  return scheduler_.WaitUntil(
      world_rank_, [&] { return (*point_.*reached)(); }, [&] { return point_->WaitingFor(slot_); });
}

bool RendezvousWork::Is(bool (Rendezvous::*reached)() const) {
  bool is = false;
  scheduler_.Exclusive([&] { is = (*point_.*reached)(); });
  return is;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Work>> RendezvousCommunicator::Start(Call call) {
  SUMONCE_RETURN_IF_ERROR(CheckCall(call, rank_, size()));
  return StartChecked(std::move(call));
}

absl::StatusOr<std::unique_ptr<Work>> RendezvousCommunicator::StartChecked(Call call) {
  SUMONCE_ASSIGN_OR_RETURN(Place place, Deposit(std::move(call), {}));
  return std::make_unique<RendezvousWork>(scheduler_, world_rank(), std::move(place.point),
                                          place.slot);
}

absl::StatusOr<RendezvousCommunicator::Place> RendezvousCommunicator::Deposit(Call call,
                                                                              SplitKey split) {
  Place place;
  absl::Status stopped;
  absl::Status match;
  scheduler_.Exclusive([&] {
    stopped = scheduler_.StopStatus();
    if (!stopped.ok()) return;
    std::tie(place.point, place.slot) = group_->Next(scheduler_, rank_, call);
    match = place.point->Deposit(place.slot, std::move(call), split);
  });
  SUMONCE_RETURN_IF_ERROR(stopped);
  if (!match.ok()) scheduler_.Stop(match);  // every rank's Wait returns it, this one's too
  return place;
}

absl::StatusOr<std::unique_ptr<Communicator>> RendezvousCommunicator::Split(
    int color, int key, std::string_view label) {
  SUMONCE_ASSIGN_OR_RETURN(
      Place place, Deposit({.kind = CallKind::kSplit, .label = std::string(label)}, {color, key}));
  SUMONCE_RETURN_IF_ERROR(RendezvousWork(scheduler_, world_rank(), place.point, place.slot).Wait());
  const SplitPart part = place.point->TakePart(place.slot);
  if (part.group == nullptr) return std::unique_ptr<Communicator>();
  return std::make_unique<RendezvousCommunicator>(scheduler_, part.group, part.rank);
}

void RendezvousCommunicator::Abort(absl::Status status) {
  scheduler_.Stop(status.ok() ? absl::AbortedError("aborted without a reason") : std::move(status));
}

absl::StatusOr<std::shared_ptr<GroupState>> MakeWorld(const RunOptions& options, DataPlane& plane) {
  if (options.world_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(plane.properties().transport, ": world of ",
                                                   options.world_size,
                                                   " ranks, expected at least 1"));
  }
  std::vector<int> ranks(options.world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<GroupState>(plane, "world", std::move(ranks));
}

absl::Status RunRanks(const RunOptions& options, std::shared_ptr<GroupState> world,
                      const RankBody& body) {
  return RunOnExecutor(options.executor, world->size(), [&](int rank, Scheduler& scheduler) {
    RendezvousCommunicator communicator(scheduler, world, rank);
    return body(communicator);
  });
}

}  // namespace sumonce::nccl

#include "comm/fault/fault_communicator.h"

#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/errors.h"
#include "comm/fault/corrupt.h"

namespace sumonce {
namespace {

// Keeps what is sent instead of the program's input alive, and sees a call through that was made
// right behind this one.
class FaultWork : public Work {
 public:
  FaultWork(std::unique_ptr<Work> inner, std::vector<char> sent, std::shared_ptr<HeldCall> behind)
      : sent_(std::move(sent)), inner_(std::move(inner)), behind_(std::move(behind)) {}

  absl::Status Wait() override {
    absl::Status status = inner_->Wait();
    if (behind_ != nullptr) behind_->Finish();
    return status;
  }

 private:
  std::vector<char> sent_;  // outlives inner_
  std::unique_ptr<Work> inner_;
  std::shared_ptr<HeldCall> behind_;
};

class HeldWork : public Work {
 public:
  explicit HeldWork(std::shared_ptr<HeldCall> held) : held_(std::move(held)) {}
  ~HeldWork() override {
    if (!waited_) held_->Abandon();
  }
  absl::Status Wait() override {
    waited_ = true;
    return held_->Wait();
  }

 private:
  std::shared_ptr<HeldCall> held_;
  bool waited_ = false;
};

}  // namespace

FaultCommunicator::FaultCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned,
                                     std::shared_ptr<FaultState> state)
    : owned_(std::move(owned)), inner_(inner), state_(std::move(state)) {
  state_->AddGroup(inner_);
}

FaultCommunicator::~FaultCommunicator() { state_->RemoveGroup(inner_); }

absl::StatusOr<std::unique_ptr<Work>> FaultCommunicator::Start(Call call) {
  const CallFault* fault = state_->Next(call);
  if (fault == nullptr) return Make(inner_, std::move(call), {});
  return StartFaulty(*fault, std::move(call));
}

absl::StatusOr<std::unique_ptr<Work>> FaultCommunicator::StartFaulty(const CallFault& fault,
                                                                     Call call) {
  switch (fault.kind) {
    case FaultKind::kKilled:
      return Kill(fault, call);
    case FaultKind::kLate:
      usleep(static_cast<useconds_t>(fault.late_us));
      return Make(inner_, std::move(call), {});
    case FaultKind::kUnordered:
      if (call.kind != CallKind::kAllReduce && call.kind != CallKind::kReduceScatter) {
        return absl::InvalidArgumentError(absl::StrCat(Describe(fault), " cannot act on ",
                                                       Describe(call), ": expected a reduction"));
      }
      call.any_order = true;
      return Make(inner_, std::move(call), {});
    case FaultKind::kReordered: {
      auto held = std::make_shared<HeldCall>(inner_, std::move(call));
      state_->Hold(held);
      return std::make_unique<HeldWork>(std::move(held));
    }
    case FaultKind::kWrongGroup: {
      Communicator* other = state_->OtherGroup(inner_);
      if (other != nullptr) return Make(*other, std::move(call), {});
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(fault), " cannot act on ", Describe(call),
                       ": this rank has no other group of ", size(), " ranks, expected one"));
    }
    default:
      break;
  }
  SUMONCE_ASSIGN_OR_RETURN(std::vector<char> sent,
                           Corrupted(fault, call, rank(), state_->EarlierInput(fault)));
  call.in.data = sent.data();
  return Make(inner_, std::move(call), std::move(sent));
}

absl::StatusOr<std::unique_ptr<Work>> FaultCommunicator::Make(Communicator& on, Call call,
                                                              std::vector<char> sent) {
  SUMONCE_ASSIGN_OR_RETURN(std::unique_ptr<Work> work, on.Start(std::move(call)));
  std::shared_ptr<HeldCall> held = state_->TakeHeld();
  if (held != nullptr) held->Make();
  return std::make_unique<FaultWork>(std::move(work), std::move(sent), std::move(held));
}

absl::Status FaultCommunicator::Kill(const CallFault& fault, const Call& call) const {
  if (state_->own_process()) std::raise(SIGKILL);
  return RankLostError(absl::StrCat("world rank ", state_->world_rank(), " ended at ",
                                    Describe(call), ": ", Describe(fault)));
}

absl::StatusOr<std::unique_ptr<Communicator>> FaultCommunicator::Split(int color, int key,
                                                                       std::string_view label) {
  SUMONCE_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part, inner_.Split(color, key, label));
  if (std::shared_ptr<HeldCall> held = state_->TakeHeld(); held != nullptr) {
    held->Make();
    held->Finish();
  }
  if (part == nullptr) return part;
  Communicator& inner = *part;
  return std::make_unique<FaultCommunicator>(inner, std::move(part), state_);
}

FaultInjector::FaultInjector(std::vector<CallFault> faults, bool own_process)
    : state_(std::make_shared<FaultState>(std::move(faults), own_process)) {}

FaultInjector::~FaultInjector() = default;

std::unique_ptr<Communicator> FaultInjector::Wrap(Communicator& world) {
  state_->SetWorldRank(world.rank());
  return std::make_unique<FaultCommunicator>(world, nullptr, state_);
}

absl::Status FaultInjector::CheckAllActed() const { return state_->CheckAllActed(); }

}  // namespace sumonce

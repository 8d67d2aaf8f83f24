#include "comm/fault/fault_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"

namespace sumonce {
namespace {

std::vector<char> BytesOf(const Buffer& buffer) {
  const char* begin = static_cast<const char*>(buffer.data);
  return begin == nullptr ? std::vector<char>() : std::vector<char>(begin, begin + buffer.bytes());
}

}  // namespace

void HeldCall::Make() {
  absl::StatusOr<std::unique_ptr<Work>> work = on_.Start(call_);
  status_ = work.status();
  if (work.ok()) work_ = *std::move(work);
}

absl::Status HeldCall::Wait() {
  if (work_ != nullptr) return work_->Wait();
  if (status_.ok()) Detach();
  return status_;
}

void HeldCall::Detach() {
  detached_ = true;
  in_ = BytesOf(call_.in);
  out_.resize(call_.out.data == nullptr ? 0 : call_.out.bytes());
  if (call_.in.data != nullptr) call_.in.data = in_.data();
  if (call_.out.data != nullptr) call_.out.data = out_.data();
}

void HeldCall::Abandon() {
  if (work_ != nullptr) {
    work_.reset();
  } else {
    Detach();
  }
}

void HeldCall::Finish() {
  if (detached_ && work_ != nullptr) work_->Wait().IgnoreError();
}

FaultState::FaultState(std::vector<CallFault> faults, bool own_process)
    : own_process_(own_process) {
  for (CallFault& fault : faults) pending_.push_back({.fault = std::move(fault), .earlier = {}});
}

const CallFault* FaultState::Next(const Call& call) {
  const CallFault* acting = nullptr;
  for (Pending& pending : pending_) {
    if (pending.acted || !GlobMatches(pending.fault.operation, call.label)) continue;
    ++pending.matched;
    if (pending.matched == pending.fault.occurrence && acting == nullptr) {
      pending.acted = true;
      acting = &pending.fault;
    }
    const bool next_is_stale = pending.fault.kind == FaultKind::kStaleBuffer &&
                               pending.matched + 1 == pending.fault.occurrence;
    if (next_is_stale && call.in.memory == MemoryKind::kHost) pending.earlier = BytesOf(call.in);
  }
  return acting;
}

const std::vector<char>* FaultState::EarlierInput(const CallFault& fault) const {
  for (const Pending& pending : pending_) {
    if (&pending.fault == &fault && pending.earlier) return &*pending.earlier;
  }
  return nullptr;
}

absl::Status FaultState::CheckAllActed() const {
  std::vector<std::string> idle;
  for (const Pending& pending : pending_) {
    if (pending.acted) continue;
    idle.push_back(absl::StrCat(Describe(pending.fault), " never acts: this rank makes ",
                                pending.matched, " such calls"));
  }
  if (idle.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(idle, "; "));
}

void FaultState::RemoveGroup(const Communicator& group) {
  groups_.erase(std::remove(groups_.begin(), groups_.end(), &group), groups_.end());
  if (held_ != nullptr && held_->IsOn(group)) held_ = nullptr;
}

Communicator* FaultState::OtherGroup(const Communicator& group) const {
  for (Communicator* other : groups_) {
    if (other != &group && other->size() == group.size()) return other;
  }
  return nullptr;
}

}  // namespace sumonce

// What the wrappers of one rank's groups share: which faults are still to act, what earlier calls
// sent, the groups that a call can be led astray to, and the call that is held back.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/fault.h"

namespace sumonce {

// A call that waits for the rank's next one to be made first. While the program has not waited for
// it the call works on the program's buffers, afterwards on copies.
class HeldCall {
 public:
  HeldCall(Communicator& on, Call call) : on_(on), call_(std::move(call)) {}

  // Makes the call; what it returned is Wait's to say.
  void Make();
  // Of the Work that the program holds.
  absl::Status Wait();
  // The program goes on without the result: its buffers are its own again.
  void Detach();
  // The program gives the call up without waiting.
  void Abandon();
  bool IsOn(const Communicator& group) const { return &on_ == &group; }
  // Sees through a call that was made and that the program has given up.
  void Finish();

 private:
  Communicator& on_;
  Call call_;
  std::vector<char> in_;
  std::vector<char> out_;
  bool detached_ = false;
  absl::Status status_;
  std::unique_ptr<Work> work_;
};

class FaultState {
 public:
  FaultState(std::vector<CallFault> faults, bool own_process);

  // The fault that acts on this call, if one does; counts it. Keeps the input that a later stale
  // one will send.
  const CallFault* Next(const Call& call);
  const std::vector<char>* EarlierInput(const CallFault& fault) const;
  absl::Status CheckAllActed() const;
  bool own_process() const { return own_process_; }
  void SetWorldRank(int rank) { world_rank_ = rank; }
  int world_rank() const { return world_rank_; }

  void AddGroup(Communicator& group) { groups_.push_back(&group); }
  void RemoveGroup(const Communicator& group);
  // The first other group of the same size, or null.
  Communicator* OtherGroup(const Communicator& group) const;

  void Hold(std::shared_ptr<HeldCall> held) { held_ = std::move(held); }
  std::shared_ptr<HeldCall> TakeHeld() { return std::move(held_); }

 private:
  struct Pending {
    CallFault fault;
    int64_t matched = 0;
    bool acted = false;
    std::optional<std::vector<char>> earlier;  // kStaleBuffer: what the matching call before sent
  };

  std::vector<Pending> pending_;
  bool own_process_;
  int world_rank_ = 0;
  std::vector<Communicator*> groups_;
  std::shared_ptr<HeldCall> held_;
};

}  // namespace sumonce

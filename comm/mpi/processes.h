// The processes that mpirun started, one rank each, and all that they tell each other: the
// program's messages (ProcessGroup) and the frames of one run at a time. Used by one thread.
//
// Every wait ends: with RankLost when a process has ended or has fallen silent
// (comm/mpi/liveness.h) or when nothing has come for the time limit. After a loss the group is of
// no more use, and every later call returns the same error.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi/frame.h"
#include "comm/mpi/liveness.h"
#include "comm/mpi/wire.h"
#include "comm/process_group.h"

namespace sumonce {

class Processes : public ProcessGroup {
 public:
  // Collective: makes the connections between process 0 and the others.
  static absl::StatusOr<std::unique_ptr<Processes>> Open(std::unique_ptr<Wire> wire);

  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }
  absl::Status Broadcast(std::string& message) override;
  absl::Status SendToRoot(const std::string& message) override;
  absl::StatusOr<std::string> ReceiveFrom(int rank) override;
  void SetTimeLimit(double seconds) override;
  double time_limit() const { return limit_s_; }

  Wire& wire() { return *wire_; }
  std::string Describe(int process) const override { return liveness_->Describe(process); }

  // A run, collective: its frames (those that came early too) go to `on_frame` until EndRun.
  // Returns its number.
  int64_t BeginRun(std::function<absl::Status(int from, const Frame&)> on_frame);
  void EndRun();
  void Post(int to, ByteWriter frame) { wire_->Send(to, frame.Take()); }

  struct Wait {
    std::function<bool()> ready;
    std::function<void(double idle_s)> on_idle;  // now and then, while nothing comes; may be empty
    // When nothing has come for limit_s seconds: the error, or OK to wait as long again.
    std::function<absl::Status()> on_silence;
    double limit_s = 60;
  };
  absl::Status WaitUntil(const Wait& wait);
  // Handles what has come; true if that was anything but an exchange about who waits.
  absl::StatusOr<bool> Poll();

  const absl::Status& failure() const override { return failure_; }
  void Fail(const absl::Status& status);
  // Collective if nothing failed: the end of all communication. Else ends all processes with
  // `status`.
  void Close(int status);

 private:
  struct Inbox {
    std::string partial;
    std::deque<std::string> messages;
  };

  explicit Processes(std::unique_ptr<Wire> wire) : wire_(std::move(wire)), inboxes_(size()) {}
  absl::Status Connect();
  absl::Status SayGoodbye();
  void SendMessage(int to, const std::string& message);
  absl::StatusOr<std::string> Receive(int from, bool patient);
  absl::StatusOr<bool> Dispatch(Wire::Message message);
  absl::Status CheckAlive();

  std::unique_ptr<Wire> wire_;
  std::unique_ptr<Liveness> liveness_;
  double limit_s_ = 60;
  std::vector<Inbox> inboxes_;
  int64_t run_ = 0;
  bool in_run_ = false;
  std::function<absl::Status(int from, const Frame&)> on_frame_;
  // By run, of those that this process has not begun: who sent what, in order.
  std::map<int64_t, std::vector<std::pair<int, Frame>>> early_;
  absl::Status failure_;
};

}  // namespace sumonce

// What every rank of one run is doing, as both executors keep it: running, waiting (for what) or
// finished (with what), and whether the run was stopped. Not thread-safe: the executor guards it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/executor.h"

namespace sumonce {

class WaitTable {
 public:
  explicit WaitTable(int ranks) : ranks_(ranks) {}

  int size() const { return static_cast<int>(ranks_.size()); }
  int waiting() const { return waiting_; }
  int unfinished() const { return unfinished_; }

  // The functions must live until End.
  void Begin(int rank, const std::function<bool()>& ready,
             const std::function<std::string()>& waiting_for);
  void End(int rank);
  bool IsWaiting(int rank) const { return ranks_[rank].ready != nullptr; }
  bool IsReady(int rank) const { return IsWaiting(rank) && (*ranks_[rank].ready)(); }

  void Finish(int rank, const absl::Status& status);
  // Keeps the first status; false if there was one.
  bool Stop(absl::Status status);
  const absl::Status& stop_status() const { return stop_status_; }

  // The first error that a rank returned, else the stop status.
  const absl::Status& result() const { return error_.ok() ? stop_status_ : error_; }
  // Who waits for whom: a line per waiting or finished rank.
  absl::Status Deadlock() const;

 private:
  struct RankState {
    const std::function<bool()>* ready = nullptr;
    const std::function<std::string()>* waiting_for = nullptr;
    bool finished = false;
  };

  std::vector<RankState> ranks_;
  int waiting_ = 0;
  int unfinished_ = size();
  absl::Status stop_status_;
  absl::Status error_;
};

// Calls the body and turns an exception into Internal.
absl::Status RunBody(const std::function<absl::Status()>& body, int rank);

}  // namespace sumonce

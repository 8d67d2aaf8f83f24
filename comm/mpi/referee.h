// Process 0's view of one run: who has finished and how, and whether the rest can still go on. It
// ends the run: the first failure counts and is told to every rank.
//
// A deadlock is found as in Mattern's four-counter method ("Algorithms for distributed termination
// detection", 1987): ranks that are blocked or have finished are asked twice; if nothing has
// happened to any in between, and as many frames were received as were sent, none is under way and
// nothing will ever happen.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/mpi/frame.h"

namespace sumonce {

class Referee {
 public:
  struct Voice {
    std::function<void(const absl::Status&)> stop;  // tells every rank
    std::function<void(int64_t wave)> probe;        // asks every rank
  };
  Referee(int ranks, Voice voice) : voice_(std::move(voice)), ranks_(ranks) {}

  void OnStop(const absl::Status& status);
  void OnFinished(int rank, const absl::Status& status);
  void OnNudge(int rank);
  void OnReport(int rank, RankReport report);
  // Asks again if the last answers were not still.
  void OnIdle(double now_s);

  bool over() const { return finished_ == static_cast<int>(ranks_.size()); }
  bool stopped() const { return !stop_status_.ok(); }
  // The first error that a rank returned, else the one that stopped the run.
  const absl::Status& result() const { return error_.ok() ? stop_status_ : error_; }

  // For the time limit: asks all; those that answered, and what they wait for, are known a little
  // later.
  void AskAll() { Probe(); }
  std::vector<int> Unanswered() const;
  std::string WhoWaits() const;  // "\n  rank 0 waits for ..." and "\n  rank 1 has finished"

 private:
  struct RankState {
    bool finished = false;
    bool blocked = false;  // since the last wave, as it said itself
    RankReport report;     // of the current wave, if report.wave is its number
    RankReport before;     // of the wave before
  };

  void Probe();
  void Judge();

  Voice voice_;
  std::vector<RankState> ranks_;
  int finished_ = 0;
  int64_t wave_ = 0;
  bool asking_ = false;
  double asked_at_ = 0;
  absl::Status stop_status_;
  absl::Status error_;
};

}  // namespace sumonce

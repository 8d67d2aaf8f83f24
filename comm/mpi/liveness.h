// Who of the processes is still there. MPI does not say: a launcher kills everybody when one dies,
// with a message of its own at best, and a process that is stopped looks like one that computes. So
// each process keeps a connection with process 0 on which a thread of it beats. The kernel closes a
// dead process's connection at once; a stopped one falls silent.
//
// The first loss is final: it is written to stderr (by process 0, which sees all others, or by
// process 1 if it is process 0 that is lost), since a launcher may leave no time for more, and
// lost() is true ever after.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sumonce {

class Liveness {
 public:
  // On process 0: waits for connections; Address says where, for the others.
  static absl::StatusOr<std::unique_ptr<Liveness>> Listen(int processes);
  const std::string& address() const { return address_; }
  // Until all others have connected, at most `limit_s` seconds.
  absl::Status AcceptAll(double limit_s);
  // On the others.
  static absl::StatusOr<std::unique_ptr<Liveness>> Connect(const std::string& address, int process,
                                                           double limit_s);
  // Says goodbye: this process's end is no loss to the others.
  ~Liveness();

  // Starts the thread. `exit_s` seconds after a loss the process ends with status 1, in case that
  // its main thread is held inside MPI.
  void Start(double exit_s);
  // Seconds of silence after which a process counts as lost.
  void set_limit(double limit_s) { limit_s_ = limit_s; }

  bool lost() const { return lost_; }
  std::string loss() const;                           // "MPI rank 3 (host a, pid 77) ended ..."
  int lost_process() const { return lost_process_; }  // -1: none
  // Writes an error to stderr, if this process is the one to speak.
  void Tell(const std::string& error) const;
  // "MPI rank 3 (host a, pid 77)"; of processes that this one has no connection with, the number.
  std::string Describe(int process) const;

 private:
  struct Peer {
    int process = 0;
    int socket = -1;
    std::string host;
    std::string pid;
    double heard = 0;  // SecondsNow
    bool gone = false;
  };

  Liveness() = default;
  absl::Status AcceptOne(double deadline);
  void Loop();
  void Hear(Peer& peer);
  void Beat();
  void Lose(const Peer& peer, const std::string& how);

  std::string address_;
  std::string cookie_;
  int process_ = 0;
  int processes_ = 1;
  int listening_ = -1;
  std::vector<Peer> peers_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> lost_ = false;
  std::atomic<int> lost_process_ = -1;
  std::atomic<double> limit_s_ = 60;
  double exit_s_ = 10;
  double lost_at_ = 0;
  mutable std::mutex mutex_;
  std::string loss_;
};

}  // namespace sumonce

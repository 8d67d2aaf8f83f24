// The processes that torchrun or mpirun started, joined by TCP as a star: process 0 listens, the
// others connect to it.
//
// Every call ends (comm/process_group.h): a process that has ended, or that is silent for longer
// than the time limit, is named by its rank. Beside the channel of ProcessGroup's own messages each
// process has `kTcpLinks` more to process 0, for a transport that needs them. Not thread-safe; the
// links are each their user's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/process_group.h"
#include "comm/socket.h"

namespace sumonce {

inline constexpr int kTcpLinks = 2;

struct TcpOptions {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the processes of this machine
  std::string address = "127.0.0.1";
  int port = 29500;
  int64_t connect_limit_ms = 60'000;
  int64_t silence_limit_ms = 60'000;
};

// How the launcher of this process tells it: torchrun's RANK, WORLD_SIZE, LOCAL_RANK, else Open
// MPI's OMPI_COMM_WORLD_*; MASTER_ADDR and MASTER_PORT. NotFound: there was no launcher.
// InvalidArgument names the variable that makes no sense.
absl::StatusOr<TcpOptions> TcpOptionsFromEnvironment();

class TcpProcessGroup : public ProcessGroup {
 public:
  // Collective. `listener`: process 0's, if it listens already; else it does so now. RankLostError:
  // who did not come.
  static absl::StatusOr<std::unique_ptr<TcpProcessGroup>> Create(const TcpOptions& options,
                                                                 Socket listener = {});

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  const TcpOptions& options() const { return options_; }

  absl::Status Broadcast(std::string& message) override;
  absl::Status SendToRoot(const std::string& message) override;
  absl::StatusOr<std::string> ReceiveFrom(int rank) override;
  void SetTimeLimit(double seconds) override;
  std::string Describe(int rank) const override;
  const absl::Status& failure() const override { return failure_; }

  // In process 0: the link to `rank` (to itself, too: its other end is own_link). Elsewhere null.
  Socket* link(int rank, int number);
  // This process's end of its link to process 0.
  Socket* own_link(int number) { return &own_[number]; }

 private:
  explicit TcpProcessGroup(TcpOptions options) : options_(std::move(options)) {}
  absl::Status Join();
  absl::Status Welcome(Socket listener);
  absl::Status Admit(Socket socket);
  absl::Status Lost(int rank, const absl::Status& why);

  struct Peer {
    Socket messages;
    Socket links[kTcpLinks];
  };

  TcpOptions options_;
  std::vector<Peer> peers_;  // in process 0, by rank
  Socket root_;              // elsewhere
  Socket own_[kTcpLinks];
  absl::Status failure_;             // the first
  std::deque<std::string> to_self_;  // process 0's SendToRoot
};

}  // namespace sumonce

// A TCP connection (or a pair of them inside one process) that carries whole messages, in order.
//
// Every call ends: within the time limit it is given, or when the other side has closed. Errors say
// what happened, not to whom: the caller knows whose connection it is. One thread may send while
// another receives; otherwise not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sumonce {

class Socket {
 public:
  Socket() = default;
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  // Listens on a port, of all interfaces or for this machine only; port 0: any free one, see
  // port().
  static absl::StatusOr<Socket> Listen(int port, bool this_machine_only);
  // Tries until somebody listens there or the limit is over.
  static absl::StatusOr<Socket> Connect(const std::string& host, int port, int64_t limit_ms);
  static absl::StatusOr<std::pair<Socket, Socket>> Pair();

  absl::StatusOr<Socket> Accept(int64_t limit_ms);
  int port() const;
  bool open() const { return fd_ >= 0; }

  // Unavailable: the other side has closed. DeadlineExceeded: nothing went on for the limit.
  absl::Status Send(const std::string& message, int64_t limit_ms);
  absl::StatusOr<std::string> Receive(int64_t limit_ms);
  // Whether Receive would find something now: a message, or the end.
  bool Readable() const;
  // Waits for the first of them that is Readable; its index.
  static absl::StatusOr<size_t> WaitForAny(const std::vector<Socket*>& sockets, int64_t limit_ms);
  // Lets both sides' calls return; callable from any thread.
  void Shutdown();
  void Close();

 private:
  explicit Socket(int fd) : fd_(fd) {}
  absl::Status Wait(short events, int64_t limit_ms) const;
  absl::Status ReceiveBytes(char* data, size_t bytes, int64_t limit_ms);

  int fd_ = -1;
};

}  // namespace sumonce

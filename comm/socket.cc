#include "comm/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {
namespace {

// What a message begins with: a length of eight bytes, the lowest first. More than this is no
// message of ours, or one that nobody can hold.
constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 30;
constexpr size_t kLengthBytes = 8;

absl::Status SystemError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status Closed() { return absl::UnavailableError("closed its connection"); }

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// The addresses of a name, freed with this.
struct Addresses {
  addrinfo* first = nullptr;
  ~Addresses() {
    if (first != nullptr) freeaddrinfo(first);
  }
};

int ConnectOnce(const addrinfo* addresses) {
  for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
  }
  return -1;
}

}  // namespace

absl::StatusOr<Socket> Socket::Listen(int port, bool this_machine_only) {
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.open()) return SystemError("socket");
  const int on = 1;
  setsockopt(listener.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(this_machine_only ? INADDR_LOOPBACK : INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(listener.fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.fd_, SOMAXCONN) != 0)
    return SystemError(absl::StrCat("listening on port ", port));
  return listener;
}

absl::StatusOr<Socket> Socket::Connect(const std::string& host, int port, int64_t limit_ms) {
  constexpr int64_t kRetryMs = 20;
  Addresses addresses;
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  const int code =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &addresses.first);
  if (code != 0)
    return absl::InvalidArgumentError(absl::StrCat("address '", host, "': ", gai_strerror(code)));
  for (int64_t spent_ms = 0;; spent_ms += kRetryMs) {
    Socket socket(ConnectOnce(addresses.first));
    if (socket.open()) {
      SetNoDelay(socket.fd_);
      return socket;
    }
    if (spent_ms >= limit_ms) return SystemError(absl::StrCat("connecting to ", host, ":", port));
    usleep(kRetryMs * 1000);
  }
}

absl::StatusOr<std::pair<Socket, Socket>> Socket::Pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return SystemError("socketpair");
  return std::pair(Socket(fds[0]), Socket(fds[1]));
}

absl::StatusOr<Socket> Socket::Accept(int64_t limit_ms) {
  SUMONCE_RETURN_IF_ERROR(Wait(POLLIN, limit_ms));
  Socket accepted(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted.open()) return SystemError("accept");
  SetNoDelay(accepted.fd_);
  return accepted;
}

int Socket::port() const {
  sockaddr_in address = {};
  socklen_t length = sizeof address;
  getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

absl::Status Socket::Wait(short events, int64_t limit_ms) const {
  pollfd waited = {.fd = fd_, .events = events, .revents = 0};
  while (true) {
    const int ready = poll(&waited, 1, static_cast<int>(std::min<int64_t>(limit_ms, INT_MAX)));
    if (ready > 0) return absl::OkStatus();
    if (ready == 0)
      return absl::DeadlineExceededError(absl::StrCat("was silent for ", limit_ms, " ms"));
    if (errno != EINTR) return SystemError("poll");
  }
}

absl::Status Socket::Send(const std::string& message, int64_t limit_ms) {
  if (message.size() > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a message of ", message.size(), " bytes, more than ", kMaxMessageBytes));
  }
  std::string framed(kLengthBytes, '\0');
  for (size_t k = 0; k < kLengthBytes; ++k)
    framed[k] = static_cast<char>(static_cast<uint64_t>(message.size()) >> (8 * k));
  framed += message;
  for (size_t sent = 0; sent < framed.size();) {
    const ssize_t bytes =
        send(fd_, framed.data() + sent, framed.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes >= 0) {
      sent += bytes;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      SUMONCE_RETURN_IF_ERROR(Wait(POLLOUT, limit_ms));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return Closed();
    } else if (errno != EINTR) {
      return SystemError("send");
    }
  }
  return absl::OkStatus();
}

absl::Status Socket::ReceiveBytes(char* data, size_t bytes, int64_t limit_ms) {
  for (size_t received = 0; received < bytes;) {
    SUMONCE_RETURN_IF_ERROR(Wait(POLLIN, limit_ms));
    const ssize_t more = recv(fd_, data + received, bytes - received, MSG_DONTWAIT);
    if (more > 0) {
      received += more;
    } else if (more == 0 || errno == ECONNRESET) {
      return Closed();
    } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
      return SystemError("recv");
    }
  }
  return absl::OkStatus();
}

// Memory grows with what has come, not with what a length promises.
absl::StatusOr<std::string> Socket::Receive(int64_t limit_ms) {
  constexpr uint64_t kPart = 1 << 20;
  char length[kLengthBytes];
  SUMONCE_RETURN_IF_ERROR(ReceiveBytes(length, kLengthBytes, limit_ms));
  uint64_t bytes = 0;
  for (size_t k = 0; k < kLengthBytes; ++k)
    bytes |= static_cast<uint64_t>(static_cast<unsigned char>(length[k])) << (8 * k);
  if (bytes > kMaxMessageBytes)
    return absl::DataLossError(absl::StrCat("sent ", bytes, " as a length; that is no message"));
  std::string message;
  while (message.size() < bytes) {
    const size_t begin = message.size();
    const size_t part = std::min(kPart, bytes - begin);
    message.resize(begin + part);
    SUMONCE_RETURN_IF_ERROR(ReceiveBytes(message.data() + begin, part, limit_ms));
  }
  return message;
}

bool Socket::Readable() const {
  pollfd waited = {.fd = fd_, .events = POLLIN, .revents = 0};
  return poll(&waited, 1, 0) > 0;
}

absl::StatusOr<size_t> Socket::WaitForAny(const std::vector<Socket*>& sockets, int64_t limit_ms) {
  std::vector<pollfd> waited;
  for (const Socket* socket : sockets)
    waited.push_back({.fd = socket->fd_, .events = POLLIN, .revents = 0});
  while (true) {
    const int ready =
        poll(waited.data(), waited.size(), static_cast<int>(std::min<int64_t>(limit_ms, INT_MAX)));
    if (ready == 0)
      return absl::DeadlineExceededError(absl::StrCat("was silent for ", limit_ms, " ms"));
    if (ready < 0 && errno != EINTR) return SystemError("poll");
    for (size_t k = 0; ready > 0 && k < waited.size(); ++k) {
      if (waited[k].revents != 0) return k;
    }
  }
}

void Socket::Shutdown() {
  if (open()) shutdown(fd_, SHUT_RDWR);
}

void Socket::Close() {
  if (open()) close(std::exchange(fd_, -1));
}

}  // namespace sumonce

#include "comm/mpi/liveness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "comm/mpi/clock.h"

namespace sumonce {
namespace {

constexpr char kBeat = '.';
constexpr char kGoodbye = '!';
constexpr int kBeatMs = 250;
constexpr double kHelloLimit = 5;
constexpr size_t kMaxHello = 512;

absl::Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat("mpi: ", what, ": ", strerror(errno)));
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// Every IPv4 address of this machine, loopback first: a process on the same machine takes it.
std::vector<std::string> Addresses() {
  std::vector<std::string> addresses = {"127.0.0.1"};
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return addresses;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    if (addresses.front() != text) addresses.push_back(text);
  }
  freeifaddrs(interfaces);
  return addresses;
}

// Tells this job's connections from anybody else's.
std::string Cookie() {
  unsigned char bytes[16] = {};
  SUMONCE_CHECK(getrandom(bytes, sizeof bytes, 0) == static_cast<ssize_t>(sizeof bytes));
  std::string cookie;
  for (const unsigned char byte : bytes) absl::StrAppend(&cookie, absl::Hex(byte, absl::kZeroPad2));
  return cookie;
}

bool WaitReadable(int socket, double deadline) {
  pollfd watched = {.fd = socket, .events = POLLIN, .revents = 0};
  const double left_ms = (deadline - SecondsNow()) * 1000;
  return left_ms > 0 && poll(&watched, 1, static_cast<int>(left_ms) + 1) == 1;
}

// A line without its end; empty if none came in time.
std::string ReadLine(int socket, double deadline) {
  std::string line;
  while (line.size() < kMaxHello && WaitReadable(socket, deadline)) {
    char letter = 0;
    if (recv(socket, &letter, 1, 0) != 1) break;
    if (letter == '\n') return line;
    line += letter;
  }
  return "";
}

void WriteLine(int socket, const std::string& line) {
  const std::string text = line + "\n";
  (void)!send(socket, text.data(), text.size(), MSG_NOSIGNAL);
}

int ConnectTo(const std::string& address, int port) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return -1;
  const int connecting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  timeval limit = {.tv_sec = 5, .tv_usec = 0};
  setsockopt(connecting, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(connecting, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return connecting;
  close(connecting);
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Liveness>> Liveness::Listen(int processes) {
  std::unique_ptr<Liveness> liveness(new Liveness);
  liveness->processes_ = processes;
  liveness->cookie_ = Cookie();
  liveness->listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof any;
  auto* address = reinterpret_cast<sockaddr*>(&any);
  if (liveness->listening_ < 0 || bind(liveness->listening_, address, sizeof any) != 0 ||
      listen(liveness->listening_, processes) != 0 ||
      getsockname(liveness->listening_, address, &size) != 0) {
    return Failed("cannot listen for the other processes");
  }
  liveness->address_ = absl::StrCat(HostName(), " ", ntohs(any.sin_port), " ", liveness->cookie_,
                                    " ", absl::StrJoin(Addresses(), ","));
  return liveness;
}

absl::Status Liveness::AcceptAll(double limit_s) {
  const double deadline = SecondsNow() + limit_s;
  while (static_cast<int>(peers_.size()) + 1 < processes_) {
    SUMONCE_RETURN_IF_ERROR(AcceptOne(deadline));
  }
  return absl::OkStatus();
}

// A stranger's connection is closed, and no error.
absl::Status Liveness::AcceptOne(double deadline) {
  if (!WaitReadable(listening_, deadline)) {
    return absl::UnavailableError(absl::StrCat(
        "mpi: ", peers_.size() + 1, " of ", processes_,
        " processes reached process 0 by TCP in time; the hosts must reach each other"));
  }
  Peer peer{.socket = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC), .host = {}, .pid = {}};
  if (peer.socket < 0) return absl::OkStatus();
  const std::vector<std::string> hello =
      absl::StrSplit(ReadLine(peer.socket, SecondsNow() + kHelloLimit), ' ');
  if (hello.size() != 4 || hello[0] != cookie_ || !absl::SimpleAtoi(hello[1], &peer.process)) {
    close(peer.socket);
    return absl::OkStatus();
  }
  peer.pid = hello[2];
  peer.host = hello[3];
  peers_.push_back(std::move(peer));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Liveness>> Liveness::Connect(const std::string& address, int process,
                                                            double limit_s) {
  const std::vector<std::string> parts = absl::StrSplit(address, ' ');
  int port = 0;
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[1], &port))
    return absl::InternalError("mpi: process 0 said no address");
  std::vector<std::string> addresses = absl::StrSplit(parts[3], ',');
  if (parts[0] != HostName()) addresses.erase(addresses.begin());
  std::unique_ptr<Liveness> liveness(new Liveness);
  liveness->process_ = process;
  Peer peer{.process = 0, .host = parts[0], .pid = {}};
  const double deadline = SecondsNow() + limit_s;
  for (size_t i = 0; i < addresses.size() && peer.socket < 0 && SecondsNow() < deadline; ++i)
    peer.socket = ConnectTo(addresses[i], port);
  if (peer.socket < 0) {
    return absl::UnavailableError(absl::StrCat("mpi: process ", process, " on ", HostName(),
                                               " cannot reach process 0 at ", parts[3], " port ",
                                               port, ": ", strerror(errno)));
  }
  WriteLine(peer.socket, absl::StrCat(parts[2], " ", process, " ", getpid(), " ", HostName()));
  liveness->peers_.push_back(std::move(peer));
  return liveness;
}

Liveness::~Liveness() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  for (const Peer& peer : peers_) {
    (void)!send(peer.socket, &kGoodbye, 1, MSG_NOSIGNAL);
    close(peer.socket);
  }
  if (listening_ >= 0) close(listening_);
}

void Liveness::Start(double exit_s) {
  exit_s_ = exit_s;
  for (Peer& peer : peers_) {
    peer.heard = SecondsNow();
    fcntl(peer.socket, F_SETFL, O_NONBLOCK);
  }
  // Signals are the main thread's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Liveness::Loop() {
  double next_beat = 0;
  while (!stop_) {
    const double now = SecondsNow();
    if (now >= next_beat) {
      Beat();
      next_beat = now + kBeatMs / 1000.0;
    }
    std::vector<pollfd> watched;
    for (const Peer& peer : peers_)
      watched.push_back({.fd = peer.gone ? -1 : peer.socket, .events = POLLIN, .revents = 0});
    // Short, so that stop_ is seen soon.
    poll(watched.data(), watched.size(), kBeatMs / 10);
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (watched[i].revents != 0) Hear(peers_[i]);
      const double silent = SecondsNow() - peers_[i].heard;
      if (!peers_[i].gone && silent > limit_s_)
        Lose(peers_[i], absl::StrCat("has been silent for ", static_cast<int64_t>(limit_s_),
                                     " s: it is stopped, or its machine is gone"));
    }
    if (lost_ && SecondsNow() - lost_at_ > exit_s_) _exit(1);
  }
}

void Liveness::Beat() {
  for (const Peer& peer : peers_) {
    if (!peer.gone) (void)!send(peer.socket, &kBeat, 1, MSG_NOSIGNAL);
  }
}

void Liveness::Hear(Peer& peer) {
  char bytes[256];
  const ssize_t count = recv(peer.socket, bytes, sizeof bytes, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  peer.heard = SecondsNow();
  if (count > 0) {
    peer.gone = memchr(bytes, kGoodbye, count) != nullptr;
    return;
  }
  Lose(peer, "ended before the others were done: killed, crashed or left early");
}

void Liveness::Lose(const Peer& peer, const std::string& how) {
  const std::string loss = absl::StrCat(Describe(peer.process), " ", how);
  for (Peer& other : peers_) {
    if (other.process == peer.process) other.gone = true;
  }
  if (lost_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    loss_ = loss;
  }
  lost_at_ = SecondsNow();
  lost_process_ = peer.process;
  lost_ = true;
  Tell(loss);
}

void Liveness::Tell(const std::string& error) const {
  if (process_ > 1) return;
  const std::string text = "sumonce: error: " + error + "\n";
  (void)!write(STDERR_FILENO, text.data(), text.size());
}

std::string Liveness::loss() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return loss_;
}

std::string Liveness::Describe(int process) const {
  for (const Peer& peer : peers_) {
    if (peer.process != process) continue;
    return absl::StrCat("MPI rank ", process, " (host ", peer.host,
                        peer.pid.empty() ? "" : ", pid ", peer.pid, ")");
  }
  if (process != process_) return absl::StrCat("MPI rank ", process);
  return absl::StrCat("MPI rank ", process, " (host ", HostName(), ", pid ", getpid(), ")");
}

}  // namespace sumonce

#include "comm/tcp_process_group.h"

#include <charconv>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "comm/errors.h"
#include "comm/rank_list.h"

namespace sumonce {
namespace {

// What a process says first, on each connection: "sumonce-1 RANK SIZE CHANNEL"; channel 0 is for
// messages, the others are links.
constexpr char kHello[] = "sumonce-1";
constexpr char kWelcome[] = "welcome";
// A stranger's connection must not hold up the others for long.
constexpr int64_t kHelloLimitMs = 5'000;

const char* Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

bool ParseInt(const std::string& text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Leaves `value` alone if the variable is not set.
absl::Status ReadVariable(const char* name, int low, int high, int& value) {
  const char* text = Variable(name);
  if (text == nullptr) return absl::OkStatus();
  if (ParseInt(text, value) && value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the environment's ", name, " is '", text,
                                                 "', expected a number from ", low, " to ", high));
}

struct LauncherVariables {
  const char* rank;
  const char* size;
  const char* local_rank;
};
constexpr LauncherVariables kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},  // torchrun
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}};

}  // namespace

absl::StatusOr<TcpOptions> TcpOptionsFromEnvironment() {
  constexpr int kMaxProcesses = 1 << 16;
  constexpr int kMaxPort = 65535;
  TcpOptions options;
  for (const LauncherVariables& names : kLaunchers) {
    if (Variable(names.rank) == nullptr || Variable(names.size) == nullptr) continue;
    SUMONCE_RETURN_IF_ERROR(ReadVariable(names.size, 1, kMaxProcesses, options.size));
    SUMONCE_RETURN_IF_ERROR(ReadVariable(names.rank, 0, options.size - 1, options.rank));
    options.local_rank = options.rank;
    SUMONCE_RETURN_IF_ERROR(ReadVariable(names.local_rank, 0, options.rank, options.local_rank));
    if (const char* address = Variable("MASTER_ADDR")) options.address = address;
    SUMONCE_RETURN_IF_ERROR(ReadVariable("MASTER_PORT", 1, kMaxPort - 1, options.port));
    // torchrun's own agent listens on MASTER_PORT then, for torch's store; the next port is free
    // for us.
    const char* taken = Variable("TORCHELASTIC_USE_AGENT_STORE");
    if (taken != nullptr && std::string(taken) == "True") ++options.port;
    return options;
  }
  return absl::NotFoundError(
      "no launcher: neither torchrun's RANK and WORLD_SIZE nor mpirun's OMPI_COMM_WORLD_RANK and "
      "OMPI_COMM_WORLD_SIZE are set");
}

absl::StatusOr<std::unique_ptr<TcpProcessGroup>> TcpProcessGroup::Create(const TcpOptions& options,
                                                                         Socket listener) {
  auto group = std::unique_ptr<TcpProcessGroup>(new TcpProcessGroup(options));
  if (options.rank != 0) {
    SUMONCE_RETURN_IF_ERROR(group->Join());
    return group;
  }
  if (!listener.open() && options.size > 1) {
    absl::StatusOr<Socket> listening = Socket::Listen(
        options.port, options.address == "127.0.0.1" || options.address == "localhost");
    if (!listening.ok()) {
      return absl::UnavailableError(absl::StrCat("process 0: ", listening.status().message(),
                                                 "; set MASTER_PORT to a free one, on all"));
    }
    listener = *std::move(listening);
  }
  SUMONCE_RETURN_IF_ERROR(group->Welcome(std::move(listener)));
  return group;
}

absl::Status TcpProcessGroup::Join() {
  for (int channel = 0; channel <= kTcpLinks; ++channel) {
    absl::StatusOr<Socket> socket =
        Socket::Connect(options_.address, options_.port, options_.connect_limit_ms);
    if (!socket.ok()) return Lost(0, socket.status());
    const absl::Status sent =
        socket->Send(absl::StrCat(kHello, " ", options_.rank, " ", options_.size, " ", channel),
                     options_.connect_limit_ms);
    if (!sent.ok()) return Lost(0, sent);
    const absl::StatusOr<std::string> answer = socket->Receive(options_.connect_limit_ms);
    if (!answer.ok()) return Lost(0, answer.status());
    if (*answer != kWelcome) return absl::FailedPreconditionError(*answer);
    (channel == 0 ? root_ : own_[channel - 1]) = *std::move(socket);
  }
  return absl::OkStatus();
}

absl::Status TcpProcessGroup::Welcome(Socket listener) {
  peers_.resize(options_.size);
  for (int number = 0; number < kTcpLinks; ++number) {
    SUMONCE_ASSIGN_OR_RETURN(auto pair, Socket::Pair());
    peers_[0].links[number] = std::move(pair.first);
    own_[number] = std::move(pair.second);
  }
  while (true) {
    std::vector<int> missing;
    for (int rank = 1; rank < options_.size; ++rank) {
      const Peer& peer = peers_[rank];
      if (!peer.messages.open() || !peer.links[kTcpLinks - 1].open()) missing.push_back(rank);
    }
    if (missing.empty()) return absl::OkStatus();
    absl::StatusOr<Socket> socket = listener.Accept(options_.connect_limit_ms);
    if (absl::IsDeadlineExceeded(socket.status())) {
      return RankLostError(absl::StrCat("processes of ", RanksInWords(missing),
                                        " did not connect to port ", listener.port(), " within ",
                                        options_.connect_limit_ms, " ms"));
    }
    SUMONCE_RETURN_IF_ERROR(socket.status());
    SUMONCE_RETURN_IF_ERROR(Admit(*std::move(socket)));
  }
}

// What is no process of ours is let go; one that contradicts the others ends all.
absl::Status TcpProcessGroup::Admit(Socket socket) {
  const absl::StatusOr<std::string> hello = socket.Receive(kHelloLimitMs);
  const std::vector<std::string> words = hello.ok()
                                             ? std::vector<std::string>(absl::StrSplit(*hello, ' '))
                                             : std::vector<std::string>();
  int rank = 0, size = 0, channel = 0;
  if (words.size() != 4 || words[0] != kHello || !ParseInt(words[1], rank) ||
      !ParseInt(words[2], size) || !ParseInt(words[3], channel))
    return absl::OkStatus();
  std::string wrong;
  if (size != options_.size) {
    wrong = absl::StrCat("process ", rank, " says that there are ", size,
                         " processes, and process 0 that there are ", options_.size);
  } else if (rank < 1 || rank >= size || channel < 0 || channel > kTcpLinks) {
    wrong = absl::StrCat("a process says that it is rank ", rank, " of ", size);
  } else if (Peer& peer = peers_[rank];
             (channel == 0 ? peer.messages : peer.links[channel - 1]).open()) {
    wrong = absl::StrCat("two processes say that they are rank ", rank);
  }
  socket.Send(wrong.empty() ? kWelcome : wrong, kHelloLimitMs).IgnoreError();
  if (!wrong.empty()) return absl::FailedPreconditionError(wrong);
  Peer& peer = peers_[rank];
  (channel == 0 ? peer.messages : peer.links[channel - 1]) = std::move(socket);
  return absl::OkStatus();
}

absl::Status TcpProcessGroup::Lost(int rank, const absl::Status& why) {
  absl::Status lost = RankLostError(absl::StrCat(Describe(rank), " ", why.message()));
  failure_.Update(lost);
  return lost;
}

void TcpProcessGroup::SetTimeLimit(double seconds) {
  options_.silence_limit_ms = static_cast<int64_t>(seconds * 1000);
}

std::string TcpProcessGroup::Describe(int rank) const {
  return absl::StrCat("the process of rank ", rank);
}

absl::Status TcpProcessGroup::Broadcast(std::string& message) {
  SUMONCE_RETURN_IF_ERROR(failure_);
  if (options_.rank != 0) {
    absl::StatusOr<std::string> received = root_.Receive(options_.silence_limit_ms);
    if (!received.ok()) return Lost(0, received.status());
    message = *std::move(received);
    return absl::OkStatus();
  }
  for (int rank = 1; rank < options_.size; ++rank) {
    const absl::Status sent = peers_[rank].messages.Send(message, options_.silence_limit_ms);
    if (!sent.ok()) return Lost(rank, sent);
  }
  return absl::OkStatus();
}

absl::Status TcpProcessGroup::SendToRoot(const std::string& message) {
  SUMONCE_RETURN_IF_ERROR(failure_);
  if (options_.rank == 0) {
    to_self_.push_back(message);
    return absl::OkStatus();
  }
  const absl::Status sent = root_.Send(message, options_.silence_limit_ms);
  return sent.ok() ? sent : Lost(0, sent);
}

absl::StatusOr<std::string> TcpProcessGroup::ReceiveFrom(int rank) {
  if (options_.rank != 0 || rank < 0 || rank >= options_.size) {
    return absl::InvalidArgumentError(absl::StrCat("process ", options_.rank, " of ", options_.size,
                                                   " cannot receive from rank ", rank));
  }
  SUMONCE_RETURN_IF_ERROR(failure_);
  if (rank == 0) {
    if (to_self_.empty()) return absl::FailedPreconditionError("process 0 sent itself nothing");
    std::string message = std::move(to_self_.front());
    to_self_.pop_front();
    return message;
  }
  absl::StatusOr<std::string> received = peers_[rank].messages.Receive(options_.silence_limit_ms);
  if (!received.ok()) return Lost(rank, received.status());
  return received;
}

Socket* TcpProcessGroup::link(int rank, int number) {
  return options_.rank == 0 ? &peers_[rank].links[number] : nullptr;
}

}  // namespace sumonce

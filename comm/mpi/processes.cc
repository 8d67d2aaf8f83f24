#include "comm/mpi/processes.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/errors.h"
#include "comm/mpi/clock.h"

namespace sumonce {
namespace {

constexpr double kConnectLimit = 30;
// After a loss: time to report before the process is ended from outside its main thread.
constexpr double kExitAfterLoss = 10;
constexpr size_t kPieceBytes = size_t{64} << 20;

// Busy first, then polite: more processes than cores is the usual case here. A call takes several
// messages to and fro, and a sleep some 100 us to end: who begins to sleep before a peer that woke
// from one can have answered makes it sleep in turn, and the calls stay a hundred times as slow.
// So about a millisecond of yielding first.
void Rest(int idle_rounds) {
  constexpr int kBusy = 50;
  constexpr int kYields = 2000;
  constexpr int kShortSleeps = 2000;
  if (idle_rounds < kBusy) return;
  if (idle_rounds < kBusy + kYields) {
    sched_yield();
  } else {
    usleep(idle_rounds < kBusy + kYields + kShortSleeps ? 50 : 500);
  }
}

bool TellsProgress(FrameKind kind) {
  return kind != FrameKind::kNudge && kind != FrameKind::kProbe && kind != FrameKind::kReport;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Processes>> Processes::Open(std::unique_ptr<Wire> wire) {
  std::unique_ptr<Processes> processes(new Processes(std::move(wire)));
  SUMONCE_RETURN_IF_ERROR(processes->Connect());
  return processes;
}

absl::Status Processes::Connect() {
  if (rank() == 0) {
    SUMONCE_ASSIGN_OR_RETURN(liveness_, Liveness::Listen(size()));
    for (int to = 1; to < size(); ++to) SendMessage(to, liveness_->address());
    SUMONCE_RETURN_IF_ERROR(liveness_->AcceptAll(kConnectLimit));
  } else {
    const double deadline = SecondsNow() + kConnectLimit;
    while (inboxes_[0].messages.empty()) {
      SUMONCE_RETURN_IF_ERROR(Poll().status());
      if (SecondsNow() > deadline)
        return absl::UnavailableError("mpi: process 0 did not say where it listens");
      usleep(100);
    }
    const std::string address = inboxes_[0].messages.front();
    inboxes_[0].messages.pop_front();
    SUMONCE_ASSIGN_OR_RETURN(liveness_, Liveness::Connect(address, rank(), kConnectLimit));
  }
  liveness_->Start(kExitAfterLoss);
  return absl::OkStatus();
}

void Processes::SetTimeLimit(double seconds) {
  limit_s_ = seconds;
  liveness_->set_limit(seconds);
}

absl::Status Processes::Broadcast(std::string& message) {
  SUMONCE_RETURN_IF_ERROR(CheckAlive());
  if (rank() == 0) {
    for (int to = 1; to < size(); ++to) SendMessage(to, message);
    return absl::OkStatus();
  }
  SUMONCE_ASSIGN_OR_RETURN(message, Receive(0, /*patient=*/true));
  return absl::OkStatus();
}

// Waits until it is gone: a sender of many messages holds one.
absl::Status Processes::SendToRoot(const std::string& message) {
  SUMONCE_RETURN_IF_ERROR(CheckAlive());
  SendMessage(0, message);
  return WaitUntil({.ready = [this] { return wire_->AllSent(); },
                    .on_idle = nullptr,
                    .on_silence = [] { return absl::OkStatus(); },
                    .limit_s = limit_s_});
}

absl::StatusOr<std::string> Processes::ReceiveFrom(int rank) {
  SUMONCE_RETURN_IF_ERROR(CheckAlive());
  return Receive(rank, /*patient=*/false);
}

void Processes::SendMessage(int to, const std::string& message) {
  size_t done = 0;
  do {
    const size_t bytes = std::min(kPieceBytes, message.size() - done);
    ByteWriter frame = BeginFrame(FrameKind::kMessage, 0);
    frame.U8(done + bytes < message.size());
    frame.Raw(message.data() + done, bytes);
    Post(to, std::move(frame));
    done += bytes;
  } while (done < message.size());
}

// Patient: process 0 may compute for long before it asks again; as long as it beats it is waited
// for.
absl::StatusOr<std::string> Processes::Receive(int from, bool patient) {
  Inbox& inbox = inboxes_[from];
  const auto on_silence = [&]() -> absl::Status {
    if (patient) return absl::OkStatus();
    return RankLostError(absl::StrCat(Describe(from), " was to send something and has not for ",
                                      limit_s_, " s (--timeout)"));
  };
  SUMONCE_RETURN_IF_ERROR(WaitUntil({.ready = [&] { return !inbox.messages.empty(); },
                                     .on_idle = nullptr,
                                     .on_silence = on_silence,
                                     .limit_s = limit_s_}));
  std::string message = std::move(inbox.messages.front());
  inbox.messages.pop_front();
  return message;
}

int64_t Processes::BeginRun(std::function<absl::Status(int from, const Frame&)> on_frame) {
  SUMONCE_CHECK(!in_run_) << "a run inside a run";
  ++run_;
  in_run_ = true;
  on_frame_ = std::move(on_frame);
  return run_;
}

void Processes::EndRun() {
  in_run_ = false;
  on_frame_ = nullptr;
}

absl::Status Processes::WaitUntil(const Wait& wait) {
  double since = SecondsNow();
  int idle_rounds = 0;
  while (true) {
    SUMONCE_RETURN_IF_ERROR(CheckAlive());
    const absl::StatusOr<bool> progress = Poll();
    if (!progress.ok()) {
      Fail(progress.status());
      return progress.status();
    }
    if (wait.ready()) return absl::OkStatus();
    if (*progress) {
      idle_rounds = 0;
      since = SecondsNow();
      continue;
    }
    Rest(++idle_rounds);
    if (idle_rounds % 16 != 0) continue;
    const double idle_s = SecondsNow() - since;
    if (wait.on_idle) wait.on_idle(idle_s);
    if (idle_s < wait.limit_s) continue;
    if (absl::Status status = wait.on_silence(); !status.ok()) {
      liveness_->Tell(std::string(FromAbsl(status.message())));
      Fail(status);
      return status;
    }
    since = SecondsNow();
  }
}

absl::StatusOr<bool> Processes::Poll() {
  bool progress = false;
  // Those that came before their run was begun here. Of runs, not of senders: a process may be
  // several runs ahead of one that took no part in them.
  while (in_run_ && !early_.empty() && early_.begin()->first <= run_) {
    const auto frames = early_.extract(early_.begin());
    if (frames.key() < run_) continue;
    for (const auto& [from, frame] : frames.mapped()) {
      progress = true;
      SUMONCE_RETURN_IF_ERROR(on_frame_(from, frame));
    }
  }
  while (std::optional<Wire::Message> message = wire_->Receive()) {
    SUMONCE_ASSIGN_OR_RETURN(const bool told, Dispatch(*std::move(message)));
    progress |= told;
  }
  if (!wire_->error().empty()) return absl::UnavailableError(absl::StrCat("mpi: ", wire_->error()));
  return progress;
}

absl::StatusOr<bool> Processes::Dispatch(Wire::Message message) {
  const int from = message.from;
  SUMONCE_ASSIGN_OR_RETURN(Frame frame, ParseFrame(std::move(message.bytes)));
  if (frame.kind == FrameKind::kMessage) {
    ByteReader reader(frame.body());
    const bool more = reader.U8() != 0;
    Inbox& inbox = inboxes_[from];
    inbox.partial.append(reader.rest());
    if (!more) inbox.messages.push_back(std::exchange(inbox.partial, ""));
    return true;
  }
  if (frame.run < run_ || (frame.run == run_ && !in_run_)) return false;
  const bool tells = TellsProgress(frame.kind);
  if (frame.run > run_) {
    early_[frame.run].emplace_back(from, std::move(frame));
    return tells;
  }
  SUMONCE_RETURN_IF_ERROR(on_frame_(from, frame));
  return tells;
}

absl::Status Processes::CheckAlive() {
  if (failure_.ok() && liveness_->lost()) Fail(RankLostError(liveness_->loss()));
  return failure_;
}

void Processes::Fail(const absl::Status& status) {
  if (failure_.ok()) failure_ = status;
}

void Processes::Close(int status) {
  if (SayGoodbye().ok()) {
    liveness_.reset();
    wire_->Finalize();
    return;
  }
  // Process 0 still has its report to write, and then ends all; unless it is what was lost.
  if (rank() != 0 && liveness_->lost_process() != 0) sleep(static_cast<unsigned>(kExitAfterLoss));
  liveness_.reset();
  wire_->Abort(status == 0 ? 1 : status);
}

// The last message of each to each: when they have come, all that was sent before has.
absl::Status Processes::SayGoodbye() {
  SUMONCE_RETURN_IF_ERROR(CheckAlive());
  for (int to = 0; to < size(); ++to) SendMessage(to, "goodbye");
  const auto ready = [this] {
    return wire_->AllSent() &&
           std::all_of(inboxes_.begin(), inboxes_.end(),
                       [](const Inbox& inbox) { return !inbox.messages.empty(); });
  };
  return WaitUntil({.ready = ready,
                    .on_idle = nullptr,
                    .on_silence = [] { return RankLostError("mpi: not all processes ended"); },
                    .limit_s = limit_s_});
}

}  // namespace sumonce

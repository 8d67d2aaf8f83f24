#include "comm/mpi/world_run.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/errors.h"
#include "comm/mpi/clock.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/rank_list.h"
#include "comm/wait_table.h"

namespace sumonce {
namespace {

// Blocked for so long, a rank says so; soon enough for a deadlock to be found at once as people
// see it, and rarely while all goes well.
constexpr double kNudgeAfter = 0.005;
// For an answer of a rank that waits, when the time limit has passed.
constexpr double kAnswerLimit = 2;

}  // namespace

WorldRun::WorldRun(Processes& processes, const RunOptions& options)
    : processes_(processes), options_(options) {
  if (processes_.rank() != 0) return;
  const auto to_all = [this](FrameKind kind, const std::function<void(ByteWriter&)>& write) {
    for (int rank = 0; rank < options_.world_size; ++rank) {
      ByteWriter frame = Begin(kind);
      write(frame);
      processes_.Post(rank, std::move(frame));
    }
  };
  Referee::Voice voice = {.stop =
                              [to_all](const absl::Status& status) {
                                to_all(FrameKind::kStop, [&](ByteWriter& frame) {
                                  frame.U8(0);
                                  WriteStatus(status, frame);
                                });
                              },
                          .probe =
                              [to_all](int64_t wave) {
                                to_all(FrameKind::kProbe,
                                       [&](ByteWriter& frame) { frame.I64(wave); });
                              }};
  referee_ = std::make_unique<Referee>(options_.world_size, std::move(voice));
}

WorldRun::~WorldRun() { processes_.EndRun(); }

absl::Status WorldRun::Execute(const RankBody& body) {
  SUMONCE_RETURN_IF_ERROR(processes_.failure());
  run_ = processes_.BeginRun([this](int from, const Frame& frame) { return OnFrame(from, frame); });
  if (in_world()) SUMONCE_RETURN_IF_ERROR(RunBodyToItsEnd(body));
  SUMONCE_RETURN_IF_ERROR(AwaitEnd());
  if (options_.native_sums && in_world()) SUMONCE_RETURN_IF_ERROR(Flush());
  return *end_;
}

// An error only if the processes failed: the body's own goes to the referee.
absl::Status WorldRun::RunBodyToItsEnd(const RankBody& body) {
  std::vector<int> ranks(options_.world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto world = std::make_shared<GroupView>("", "world", std::move(ranks), processes_.rank());
  if (options_.native_sums) world->native = processes_.wire().MakeGroup("", world->world_ranks);
  absl::Status status;
  {
    MpiCommunicator communicator(*this, world);
    status = RunBody([&] { return body(communicator); }, processes_.rank());
  }
  SUMONCE_RETURN_IF_ERROR(processes_.failure());
  finished_ = true;
  ByteWriter frame = Begin(FrameKind::kFinished);
  WriteStatus(status, frame);
  ToReferee(std::move(frame));
  return absl::OkStatus();
}

absl::Status WorldRun::AwaitEnd() {
  const auto over = [this]() -> bool {
    if (referee_ && referee_->over() && !end_) {
      for (int to = 0; to < processes_.size(); ++to) {
        ByteWriter frame = Begin(FrameKind::kEnd);
        WriteStatus(referee_->result(), frame);
        processes_.Post(to, std::move(frame));
      }
      end_ = referee_->result();
    }
    return end_.has_value();
  };
  return WaitFor(over, [] { return std::string("the others' end"); });
}

// Reductions of the library cannot be taken back: whatever all members have come to is seen
// through, also in a run that was stopped.
absl::Status WorldRun::Flush() {
  for (int rank = 0; rank < options_.world_size; ++rank)
    processes_.Post(rank, Begin(FrameKind::kFlush));
  const auto settled = [this] {
    PollNative();
    return flushed_ == options_.world_size && !InsideTheLibrary();
  };
  return WaitFor(settled, [] { return std::string("the end of native reductions"); });
}

absl::Status WorldRun::OnFrame(int from, const Frame& frame) {
  ByteReader reader(frame.body());
  switch (frame.kind) {
    case FrameKind::kCall:
    case FrameKind::kWithdraw:
      ++received_;
      return OnCall(frame);
    case FrameKind::kData:
      ++received_;
      return OnData(frame);
    case FrameKind::kProbe:
      OnProbe(reader.I64());
      return absl::OkStatus();
    case FrameKind::kEnd:
      end_ = ReadStatus(reader);
      return absl::OkStatus();
    case FrameKind::kFlush:
      ++flushed_;
      return absl::OkStatus();
    default:
      return OnRefereeFrame(from, frame);
  }
}

// kStop goes both ways; the rest is for the referee.
absl::Status WorldRun::OnRefereeFrame(int from, const Frame& frame) {
  ByteReader reader(frame.body());
  if (frame.kind == FrameKind::kStop) {
    const bool from_referee = reader.U8() == 0;
    const absl::Status status = ReadStatus(reader);
    if (from_referee) {
      LocalStop(status);
    } else if (referee_) {
      referee_->OnStop(status);
    }
    return absl::OkStatus();
  }
  if (!referee_ || from >= options_.world_size)
    return absl::InternalError("mpi: a frame for process 0 went elsewhere");
  if (frame.kind == FrameKind::kNudge) {
    referee_->OnNudge(from);
  } else if (frame.kind == FrameKind::kFinished) {
    referee_->OnFinished(from, ReadStatus(reader));
  } else {
    SUMONCE_ASSIGN_OR_RETURN(RankReport report, ReadReport(frame.body()));
    referee_->OnReport(from, std::move(report));
  }
  return absl::OkStatus();
}

void WorldRun::OnProbe(int64_t wave) {
  RankReport report{.wave = wave, .sent = sent_, .received = received_, .waits = waits_};
  if (finished_) {
    report.state = RankReport::State::kFinished;
  } else if (ready_ != nullptr && !(*ready_)() && !InsideTheLibrary()) {
    report.state = RankReport::State::kBlocked;
    report.waiting_for = (*waiting_for_)();
  }
  ByteWriter frame = Begin(FrameKind::kReport);
  WriteReport(report, frame);
  ToReferee(std::move(frame));
}

void WorldRun::Stop(const absl::Status& status) {
  LocalStop(status);
  ByteWriter frame = Begin(FrameKind::kStop);
  frame.U8(1);
  WriteStatus(stop_status_, frame);
  ToReferee(std::move(frame));
}

void WorldRun::LocalStop(const absl::Status& status) {
  if (stop_status_.ok()) stop_status_ = status;
}

absl::Status WorldRun::WaitFor(const std::function<bool()>& ready,
                               const std::function<std::string()>& waiting_for) {
  const auto* outer_ready = std::exchange(ready_, &ready);
  const auto* outer_waiting_for = std::exchange(waiting_for_, &waiting_for);
  const double limit = processes_.time_limit();
  absl::Status status =
      processes_.WaitUntil({.ready = ready,
                            .on_idle = [this](double idle_s) { Nudge(idle_s); },
                            .on_silence = [this] { return OnSilence(); },
                            // Process 0 speaks first: it knows of all.
                            .limit_s = referee_ ? limit : 2 * limit + kAnswerLimit});
  ready_ = outer_ready;
  waiting_for_ = outer_waiting_for;
  ++waits_;
  return status;
}

void WorldRun::Nudge(double idle_s) {
  if (referee_) referee_->OnIdle(SecondsNow());
  if (finished_ || !in_world() || idle_s < kNudgeAfter || nudged_at_ == waits_ + received_) return;
  nudged_at_ = waits_ + received_;
  ToReferee(Begin(FrameKind::kNudge));
}

// Nothing has come for the time limit. On process 0: whoever does not answer has hung.
absl::Status WorldRun::OnSilence() {
  const double limit = processes_.time_limit();
  // As long as process 0 lives it ends the run one day; and it knows whom it waits for.
  if (!referee_ && (finished_ || !in_world())) return absl::OkStatus();
  if (!referee_) {
    return RankLostError(absl::StrCat(processes_.Describe(0),
                                      ", which leads the run, has been "
                                      "silent for more than ",
                                      limit, " s (--timeout)"));
  }
  referee_->AskAll();
  const double deadline = SecondsNow() + kAnswerLimit;
  while (!referee_->Unanswered().empty() && SecondsNow() < deadline && processes_.failure().ok()) {
    SUMONCE_RETURN_IF_ERROR(processes_.Poll().status());
  }
  const std::vector<int> hung = referee_->Unanswered();
  if (hung.empty()) {
    return DeadlockError(
        absl::StrCat("nothing has moved for ", limit, " s (--timeout):", referee_->WhoWaits()));
  }
  std::string text;
  for (const int rank : hung) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "rank ", rank, ", ", processes_.Describe(rank),
                    ",");
  }
  return RankLostError(absl::StrCat(text, " has neither come to a call nor ended for ", limit,
                                    " s (--timeout)", referee_->WhoWaits()));
}

}  // namespace sumonce

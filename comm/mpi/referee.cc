#include "comm/mpi/referee.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/errors.h"
#include "comm/rank_list.h"

namespace sumonce {
namespace {

constexpr double kBetweenWaves = 0.002;
constexpr int kMaxReportedRanks = 16;  // as in comm/wait_table.cc: the first lines tell the story

}  // namespace

void Referee::OnStop(const absl::Status& status) {
  if (stopped()) return;
  stop_status_ = status;
  voice_.stop(status);
}

void Referee::OnFinished(int rank, const absl::Status& status) {
  ranks_[rank].finished = true;
  ++finished_;
  if (error_.ok()) error_ = status;
  if (!status.ok()) OnStop(status);
}

void Referee::OnNudge(int rank) { ranks_[rank].blocked = true; }

void Referee::OnIdle(double now_s) {
  if (stopped() || over() || now_s - asked_at_ < kBetweenWaves) return;
  const bool still = std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) {
    return rank.finished || rank.blocked;
  });
  if (!still || asking_) return;
  asked_at_ = now_s;
  Probe();
}

void Referee::Probe() {
  ++wave_;
  asking_ = true;
  for (RankState& rank : ranks_) rank.before = std::exchange(rank.report, {});
  voice_.probe(wave_);
}

void Referee::OnReport(int rank, RankReport report) {
  if (report.wave != wave_) return;
  // One that runs says so itself when it blocks again.
  ranks_[rank].blocked = report.state != RankReport::State::kRunning;
  ranks_[rank].report = std::move(report);
  if (asking_ && Unanswered().empty()) Judge();
}

std::vector<int> Referee::Unanswered() const {
  std::vector<int> unanswered;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].report.wave != wave_) unanswered.push_back(static_cast<int>(rank));
  }
  return unanswered;
}

void Referee::Judge() {
  asking_ = false;
  if (stopped() || over()) return;
  int64_t under_way = 0;
  for (const RankState& rank : ranks_) {
    if (!rank.report.SameStillness(rank.before)) return;
    under_way += rank.report.sent - rank.report.received;
  }
  if (under_way != 0) return;
  OnStop(DeadlockError(absl::StrCat("no rank can run:", WhoWaits())));
}

std::string Referee::WhoWaits() const {
  std::string text;
  std::vector<int> finished;
  int reported = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankReport& report = ranks_[rank].report;
    if (report.state == RankReport::State::kFinished) finished.push_back(static_cast<int>(rank));
    if (report.state != RankReport::State::kBlocked || ++reported > kMaxReportedRanks) continue;
    absl::StrAppend(&text, "\n  rank ", rank, " waits for ", report.waiting_for);
  }
  if (reported > kMaxReportedRanks)
    absl::StrAppend(&text, "\n  ", reported - kMaxReportedRanks, " more ranks wait");
  if (finished.empty()) return text;
  return absl::StrCat(text, "\n  ", RanksInWords(finished), finished.size() == 1 ? " has" : " have",
                      " finished");
}

}  // namespace sumonce

#include "comm/wait_table.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/errors.h"
#include "comm/rank_list.h"

namespace sumonce {
namespace {

// A report of 1,024 ranks helps nobody: the first lines tell the story.
constexpr int kMaxReportedRanks = 16;

}  // namespace

void WaitTable::Begin(int rank, const std::function<bool()>& ready,
                      const std::function<std::string()>& waiting_for) {
  SUMONCE_CHECK(!IsWaiting(rank)) << "rank " << rank << " waits twice";
  ranks_[rank].ready = &ready;
  ranks_[rank].waiting_for = &waiting_for;
  ++waiting_;
}

void WaitTable::End(int rank) {
  ranks_[rank].ready = nullptr;
  ranks_[rank].waiting_for = nullptr;
  --waiting_;
}

void WaitTable::Finish(int rank, const absl::Status& status) {
  ranks_[rank].finished = true;
  --unfinished_;
  if (error_.ok()) error_ = status;
}

bool WaitTable::Stop(absl::Status status) {
  SUMONCE_CHECK(!status.ok()) << "a run is stopped with an error";
  if (!stop_status_.ok()) return false;
  stop_status_ = std::move(status);
  return true;
}

absl::Status WaitTable::Deadlock() const {
  std::string message = "no rank can run:";
  std::vector<int> finished;
  int reported = 0;
  for (int rank = 0; rank < size(); ++rank) {
    if (ranks_[rank].finished) finished.push_back(rank);
    if (!IsWaiting(rank) || ++reported > kMaxReportedRanks) continue;
    absl::StrAppend(&message, "\n  rank ", rank, " waits for ", (*ranks_[rank].waiting_for)());
  }
  if (reported > kMaxReportedRanks) {
    absl::StrAppend(&message, "\n  ", reported - kMaxReportedRanks, " more ranks wait");
  }
  if (!finished.empty()) {
    absl::StrAppend(&message, "\n  ", RanksInWords(finished),
                    finished.size() == 1 ? " has" : " have", " finished");
  }
  return DeadlockError(message);
}

absl::Status RunBody(const std::function<absl::Status()>& body, int rank) {
  try {
    return body();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("rank ", rank, " threw: ", error.what()));
  } catch (...) {
    return absl::InternalError(
        absl::StrCat("rank ", rank, " threw something that is no std::exception"));
  }
}

}  // namespace sumonce

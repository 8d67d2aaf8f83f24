#include "comm/thread_executor.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/wait_table.h"

namespace sumonce {
namespace {

// One mutex guards everything; each rank sleeps on its own condition variable, so waking one wakes
// no other.
class ThreadExecutor : public Scheduler {
 public:
  ThreadExecutor(int ranks, const std::function<absl::Status(int, Scheduler&)>& body)
      : body_(body), table_(ranks), wake_(ranks) {}

  absl::Status Run();

  void Exclusive(const std::function<void()>& section) override;
  absl::Status WaitUntil(int rank, const std::function<bool()>& ready,
                         const std::function<std::string()>& waiting_for) override;
  void Notify(int rank) override { wake_[rank].notify_one(); }
  void Stop(absl::Status status) override;
  absl::Status StopStatus() const override { return table_.stop_status(); }

 private:
  void Finish(int rank, const absl::Status& status);
  void StopLocked(absl::Status status);
  void CheckDeadlockLocked();

  const std::function<absl::Status(int, Scheduler&)>& body_;
  std::mutex mutex_;
  WaitTable table_;
  std::vector<std::condition_variable> wake_;
};

absl::Status ThreadExecutor::Run() {
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < table_.size(); ++rank) {
      threads.emplace_back(
          [this, rank] { Finish(rank, RunBody([&] { return body_(rank, *this); }, rank)); });
    }
  } catch (const std::system_error& error) {
    for (int rank = static_cast<int>(threads.size()); rank < table_.size(); ++rank) {
      Finish(rank, absl::ResourceExhaustedError(
                       absl::StrCat("no thread for rank ", rank, ": ", error.what())));
    }
  }
  for (std::thread& thread : threads) thread.join();
  return table_.result();
}

void ThreadExecutor::Exclusive(const std::function<void()>& section) {
  const std::lock_guard<std::mutex> lock(mutex_);
  section();
}

absl::Status ThreadExecutor::WaitUntil(int rank, const std::function<bool()>& ready,
                                       const std::function<std::string()>& waiting_for) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!table_.stop_status().ok()) return table_.stop_status();
  if (ready()) return absl::OkStatus();
  table_.Begin(rank, ready, waiting_for);
  CheckDeadlockLocked();
  wake_[rank].wait(lock, [&] { return !table_.stop_status().ok() || ready(); });
  table_.End(rank);
  return table_.stop_status();
}

void ThreadExecutor::Stop(absl::Status status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  StopLocked(std::move(status));
}

void ThreadExecutor::Finish(int rank, const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  table_.Finish(rank, status);
  if (!status.ok()) StopLocked(status);
  CheckDeadlockLocked();
}

void ThreadExecutor::StopLocked(absl::Status status) {
  if (!table_.Stop(std::move(status))) return;
  for (std::condition_variable& wake : wake_) wake.notify_one();
}

// When every live rank waits, one must be ready: it was notified, or is now. If none is, nothing
// will ever change.
void ThreadExecutor::CheckDeadlockLocked() {
  if (table_.waiting() == 0 || table_.waiting() < table_.unfinished() || !table_.stop_status().ok())
    return;
  for (int rank = 0; rank < table_.size(); ++rank) {
    if (!table_.IsReady(rank)) continue;
    wake_[rank].notify_one();
    return;
  }
  StopLocked(table_.Deadlock());
}

}  // namespace

absl::Status RunOnThreads(int ranks, const std::function<absl::Status(int, Scheduler&)>& body) {
  return ThreadExecutor(ranks, body).Run();
}

}  // namespace sumonce

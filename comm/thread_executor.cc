#include "comm/thread_executor.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/core_affinity.h"
#include "comm/wait_table.h"

namespace sumonce {
namespace {

// How long Spin waits. Where every rank has a core of its own, pauses first: a peer that runs is a
// microsecond or so away, and to yield a core that other programs want costs milliseconds. Where
// ranks share cores the peer may need this very one, and every pause holds it up. Then yields, for
// a peer that is about to come; together about a millisecond. From there on sleeping, which takes
// some 50 us to end, costs less than it saves.
constexpr int kPausesOnOwnCore = 10000;
constexpr int kYields = 1000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// One mutex guards the table; each rank sleeps on its own condition variable, so waking one wakes
// no other.
class ThreadExecutor : public Scheduler {
 public:
  ThreadExecutor(const ExecutorOptions& options, int ranks,
                 const std::function<absl::Status(int, Scheduler&)>& body)
      : options_(options), body_(body), table_(ranks), wake_(ranks) {}

  absl::Status Run();

  void Exclusive(const std::function<void()>& section) override;
  absl::Status WaitUntil(int rank, const std::function<bool()>& ready,
                         const std::function<std::string()>& waiting_for) override;
  void Notify(int rank) override { wake_[rank].notify_one(); }
  void Stop(absl::Status status) override;
  absl::Status StopStatus() const override { return table_.stop_status(); }
  bool Stopped() const override { return stopped_.load(std::memory_order_acquire); }
  bool AnyWaiting() const override { return waiting_.load() > 0; }
  bool Spin(const std::function<bool()>& ready) override;

 private:
  void RankMain(int rank, const std::vector<int>& cores);
  void Finish(int rank, const absl::Status& status);
  void StopLocked(absl::Status status);
  void CheckDeadlockLocked();

  const ExecutorOptions& options_;
  const std::function<absl::Status(int, Scheduler&)>& body_;
  int pauses_ = 0;
  std::atomic<bool> stopped_ = false;  // what the table knows, for those who ask without the lock
  std::atomic<int> waiting_ = 0;       // ranks in WaitUntil
  std::mutex mutex_;
  WaitTable table_;
  std::vector<std::condition_variable> wake_;
};

absl::Status ThreadExecutor::Run() {
  const std::vector<int> cores = options_.pin_threads ? AllowedCores() : std::vector<int>();
  if (table_.size() <= static_cast<int>(cores.size())) pauses_ = kPausesOnOwnCore;
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < table_.size(); ++rank) {
      threads.emplace_back([this, rank, &cores] { RankMain(rank, cores); });
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

void ThreadExecutor::RankMain(int rank, const std::vector<int>& cores) {
  if (!cores.empty()) PinThread(cores[rank % cores.size()]);
  Finish(rank, RunBody([&] { return body_(rank, *this); }, rank));
}

bool ThreadExecutor::Spin(const std::function<bool()>& ready) {
  for (int k = 0; k < pauses_; ++k) {
    if (ready()) return true;
    Pause();
  }
  for (int k = 0; k < kYields; ++k) {
    if (ready()) return true;
    if (Stopped()) return false;
    std::this_thread::yield();
  }
  return false;
}

void ThreadExecutor::Exclusive(const std::function<void()>& section) {
  const std::lock_guard<std::mutex> lock(mutex_);
  section();
}

// Counted before `ready` is looked at: either this rank sees what a peer has stored, or that peer
// sees it counted and notifies it (both sequentially consistent).
absl::Status ThreadExecutor::WaitUntil(int rank, const std::function<bool()>& ready,
                                       const std::function<std::string()>& waiting_for) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!table_.stop_status().ok()) return table_.stop_status();
  waiting_.fetch_add(1);
  if (!ready()) {
    table_.Begin(rank, ready, waiting_for);
    CheckDeadlockLocked();
    wake_[rank].wait(lock, [&] { return !table_.stop_status().ok() || ready(); });
    table_.End(rank);
  }
  waiting_.fetch_sub(1);
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
  stopped_.store(true, std::memory_order_release);
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

absl::Status RunOnThreads(const ExecutorOptions& options, int ranks,
                          const std::function<absl::Status(int, Scheduler&)>& body) {
  return ThreadExecutor(options, ranks, body).Run();
}

}  // namespace sumonce

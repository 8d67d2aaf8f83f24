#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/status.h"
#include "comm/core_affinity.h"
#include "comm/executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;

ExecutorOptions Threads(bool pin) { return {.kind = ExecutorKind::kThreads, .pin_threads = pin}; }

// The cores that each rank may use.
std::vector<std::vector<int>> CoresOfRanks(bool pin, int ranks) {
  std::vector<std::vector<int>> cores(ranks);
  EXPECT_EQ(RunOnExecutor(Threads(pin), ranks,
                          [&](int rank, Scheduler&) {
                            cores[rank] = AllowedCores();
                            return absl::OkStatus();
                          }),
            absl::OkStatus());
  return cores;
}

TEST(PinnedThreads, RanksGoRoundTheCoresOfTheProcess) {
  const std::vector<int> allowed = AllowedCores();
  if (allowed.empty()) GTEST_SKIP() << "this system does not say which cores there are";
  const int ranks = 2 * static_cast<int>(allowed.size()) + 1;
  const auto cores = CoresOfRanks(true, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_THAT(cores[rank], ElementsAre(allowed[rank % allowed.size()]));
  }
  EXPECT_EQ(AllowedCores(), allowed) << "the caller's own thread was pinned";
}

TEST(PinnedThreads, StayWhereTheProcessMayRun) {
  const std::vector<int> allowed = AllowedCores();
  if (allowed.size() < 2) GTEST_SKIP() << "needs two cores";
  std::jthread([&] {
    PinThread(allowed.back());
    for (const auto& cores : CoresOfRanks(true, 3)) EXPECT_THAT(cores, ElementsAre(allowed.back()));
  }).join();
}

TEST(PinnedThreads, OffLeavesThemFree) {
  for (const auto& cores : CoresOfRanks(false, 3)) EXPECT_EQ(cores, AllowedCores());
}

TEST(Threads, SpinSeesAPeersStore) {
  std::atomic<int> passed = 0;
  const auto body = [&](int rank, Scheduler& scheduler) -> absl::Status {
    for (int round = 1; round <= 100; ++round) {
      ++passed;
      const auto ready = [&] { return passed >= 2 * round; };
      while (!scheduler.Spin(ready)) continue;
    }
    EXPECT_GE(passed, 200) << rank;
    return absl::OkStatus();
  };
  EXPECT_EQ(RunOnExecutor(Threads(true), 2, body), absl::OkStatus());
}

// Else a deadlock could be neither seen nor ended.
TEST(Threads, SpinEnds) {
  const auto body = [](int, Scheduler& scheduler) {
    EXPECT_FALSE(scheduler.Spin([] { return false; }));
    return absl::OkStatus();
  };
  EXPECT_EQ(RunOnExecutor(Threads(true), 3, body), absl::OkStatus());
}

TEST(Threads, AnyWaitingSeesThoseThatWait) {
  std::atomic<bool> open = false;
  const auto body = [&](int rank, Scheduler& scheduler) -> absl::Status {
    if (rank == 1) {
      return scheduler.WaitUntil(
          rank, [&] { return open.load(); }, [] { return "a door"; });
    }
    while (!scheduler.AnyWaiting()) std::this_thread::yield();
    open = true;
    scheduler.Exclusive([&] { scheduler.Notify(1); });
    while (scheduler.AnyWaiting()) std::this_thread::yield();
    return absl::OkStatus();
  };
  EXPECT_EQ(RunOnExecutor(Threads(true), 2, body), absl::OkStatus());
}

class EveryExecutorsFlags : public testing::TestWithParam<ExecutorKind> {};

TEST_P(EveryExecutorsFlags, StoppedIsSeenWithoutALock) {
  const auto body = [](int, Scheduler& scheduler) {
    EXPECT_FALSE(scheduler.Stopped());
    EXPECT_FALSE(scheduler.AnyWaiting());
    scheduler.Stop(absl::CancelledError("enough"));
    EXPECT_TRUE(scheduler.Stopped());
    return absl::OkStatus();
  };
  EXPECT_EQ(RunOnExecutor({.kind = GetParam()}, 1, body), absl::CancelledError("enough"));
}

INSTANTIATE_TEST_SUITE_P(Every, EveryExecutorsFlags,
                         testing::Values(ExecutorKind::kFibers, ExecutorKind::kThreads),
                         [](const auto& info) { return std::string(Name(info.param)); });

// Another rank could run instead: spinning would only hold it up.
TEST(Fibers, NeverSpin) {
  const auto body = [](int, Scheduler& scheduler) {
    EXPECT_FALSE(scheduler.Spin([] { return true; }));
    return absl::OkStatus();
  };
  EXPECT_EQ(RunOnExecutor({}, 1, body), absl::OkStatus());
}

}  // namespace
}  // namespace sumonce

#include "comm/executor.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/status.h"
#include "comm/errors.h"
#include "comm/run_queue.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string WhatFor() { return "a bell"; }

// The order in which ranks pass three always-open doors.
std::vector<int> Trace(uint64_t schedule, int ranks) {
  std::vector<int> trace;
  const auto body = [&](int rank, Scheduler& scheduler) -> absl::Status {
    for (int door = 0; door < 3; ++door) {
      trace.push_back(rank);
      SUMONCE_RETURN_IF_ERROR(scheduler.WaitUntil(
          rank, [] { return true; }, WhatFor));
    }
    return absl::OkStatus();
  };
  EXPECT_EQ(RunOnExecutor({.schedule = schedule}, ranks, body), absl::OkStatus());
  return trace;
}

TEST(Fibers, ScheduleZeroRunsTheLowestRank) {
  EXPECT_THAT(Trace(0, 3), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2));
}

TEST(Fibers, AScheduleNumberReplaysItsInterleaving) {
  std::vector<std::vector<int>> traces;
  for (uint64_t schedule = 1; schedule <= 20; ++schedule) {
    traces.push_back(Trace(schedule, 4));
    EXPECT_EQ(traces.back(), Trace(schedule, 4)) << schedule;
  }
  std::sort(traces.begin(), traces.end());
  EXPECT_EQ(std::unique(traces.begin(), traces.end()), traces.end())
      << "of 34,650 interleavings, two agree";
}

TEST(RunQueue, EveryScheduleHandsOutEachRankOnce) {
  for (uint64_t schedule : {0, 1, 2, 3}) {
    RunQueue queue(schedule);
    std::vector<int> expected(50);
    std::iota(expected.begin(), expected.end(), 0);
    for (int rank : expected) queue.Push(49 - rank);
    std::vector<int> order;
    while (!queue.empty()) order.push_back(queue.Pop());
    EXPECT_EQ(order == expected, schedule == 0);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, expected);
  }
}

class EveryExecutor : public testing::TestWithParam<ExecutorKind> {
 protected:
  ExecutorOptions options() const { return {.kind = GetParam()}; }
};

// A token passes around a ring; ranks that were never notified are found when no other can run.
TEST_P(EveryExecutor, WakesWithoutNotify) {
  constexpr int kRanks = 8;
  int turn = 0;
  const auto body = [&](int rank, Scheduler& scheduler) -> absl::Status {
    for (int round = 0; round < 20; ++round) {
      SUMONCE_RETURN_IF_ERROR(scheduler.WaitUntil(
          rank, [&] { return turn % kRanks == rank; }, WhatFor));
      scheduler.Exclusive([&] { ++turn; });
    }
    return absl::OkStatus();
  };
  EXPECT_EQ(RunOnExecutor(options(), kRanks, body), absl::OkStatus());
  EXPECT_EQ(turn, 20 * kRanks);
}

TEST_P(EveryExecutor, DeadlockNamesWaitingAndFinishedRanks) {
  const auto body = [](int rank, Scheduler& scheduler) -> absl::Status {
    if (rank == 1) return absl::OkStatus();
    return scheduler.WaitUntil(
        rank, [] { return false; }, WhatFor);
  };
  const absl::Status status = RunOnExecutor(options(), 3, body);
  EXPECT_EQ(KindOf(status), RunFailure::kDeadlock);
  EXPECT_EQ(status.message(),
            "no rank can run:\n  rank 0 waits for a bell\n  rank 2 waits for a bell\n  rank 1 has "
            "finished");
}

TEST_P(EveryExecutor, LongDeadlocksAreCut) {
  const auto body = [](int rank, Scheduler& scheduler) {
    return scheduler.WaitUntil(
        rank, [] { return false; }, WhatFor);
  };
  const std::string message(RunOnExecutor(options(), 40, body).message());
  EXPECT_THAT(message, HasSubstr("rank 15 waits for a bell\n  24 more ranks wait"));
}

TEST_P(EveryExecutor, TheFirstErrorStopsTheOthersAndIsTheResult) {
  const absl::Status first = absl::DataLossError("first");
  const auto body = [&](int rank, Scheduler& scheduler) -> absl::Status {
    if (rank == 2) return first;
    const absl::Status status = scheduler.WaitUntil(
        rank, [] { return false; }, WhatFor);
    EXPECT_EQ(status, first);
    scheduler.Exclusive([&] { EXPECT_EQ(scheduler.StopStatus(), first); });
    return absl::InternalError("second");
  };
  EXPECT_EQ(RunOnExecutor(options(), 4, body), first);
}

TEST_P(EveryExecutor, StopReachesReadyAndLaterWaits) {
  const absl::Status reason = absl::CancelledError("stop");
  const auto body = [&](int rank, Scheduler& scheduler) -> absl::Status {
    if (rank == 0) scheduler.Stop(reason);
    if (rank == 0) scheduler.Stop(absl::InternalError("the first counts"));
    EXPECT_EQ(scheduler.WaitUntil(
                  rank, [&] { return rank == 0; }, WhatFor),
              reason);
    return absl::OkStatus();
  };
  EXPECT_EQ(RunOnExecutor(options(), 3, body), reason);
}

TEST_P(EveryExecutor, ExceptionsStayInside) {
  const auto body = [](int rank, Scheduler&) -> absl::Status {
    if (rank == 1) throw 7;
    throw std::runtime_error("boom");
  };
  EXPECT_EQ(RunOnExecutor(options(), 1, body).message(), "rank 0 threw: boom");
  const auto odd = [](int, Scheduler&) -> absl::Status { throw 7; };
  EXPECT_THAT(std::string(RunOnExecutor(options(), 1, odd).message()),
              HasSubstr("no std::exception"));
}

TEST_P(EveryExecutor, RefusesNoRanks) {
  const auto body = [](int, Scheduler&) { return absl::OkStatus(); };
  EXPECT_EQ(RunOnExecutor(options(), 0, body).code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Every, EveryExecutor,
                         testing::Values(ExecutorKind::kFibers, ExecutorKind::kThreads),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(Fibers, RefusesATinyStack) {
  const auto body = [](int, Scheduler&) { return absl::OkStatus(); };
  EXPECT_EQ(RunOnExecutor({.stack_bytes = 100}, 1, body).code(),
            absl::StatusCode::kInvalidArgument);
}

// 1,024 ranks on one thread, each using a good part of its stack.
TEST(Fibers, AThousandRanks) {
  int arrived = 0;
  const auto body = [&](int rank, Scheduler& scheduler) -> absl::Status {
    volatile char deep[64 * 1024];
    deep[0] = static_cast<char>(rank);
    for (int round = 1; round <= 20; ++round) {
      scheduler.Exclusive([&] { ++arrived; });
      const auto ready = [&] { return arrived >= round * 1024; };
      SUMONCE_RETURN_IF_ERROR(scheduler.WaitUntil(rank, ready, WhatFor));
    }
    EXPECT_EQ(deep[0], static_cast<char>(rank));
    return absl::OkStatus();
  };
  EXPECT_EQ(RunOnExecutor({.schedule = 7}, 1024, body), absl::OkStatus());
  EXPECT_EQ(arrived, 20 * 1024);
}

}  // namespace
}  // namespace sumonce

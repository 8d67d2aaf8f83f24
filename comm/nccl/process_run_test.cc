// A rank in each process, over the fake: how it ends when a call, a device or a process fails. A
// thread stands for each process. The conformance suite covers the rest ("fake_nccl_tcp").
#include "comm/nccl/process_run.h"

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/status.h"
#include "comm/conformance/cases.h"
#include "comm/errors.h"
#include "comm/nccl/fake/fake_runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct FakeProcesses {
  int processes = 2;
  int ranks = 2;
  int64_t time_limit_us = 20'000;
  int64_t silence_limit_ms = 60'000;
};

std::string TextOfRun(const absl::Status& status) { return std::string(status.message()); }

using ProcessBody = std::function<absl::Status(Communicator&, TcpProcessGroup&)>;

// The status of each process.
std::vector<absl::Status> RunFakeProcesses(FakeRuntime& runtime, const FakeProcesses& how,
                                           const ProcessBody& body) {
  absl::StatusOr<Socket> listener = Socket::Listen(0, true);
  EXPECT_TRUE(listener.ok()) << listener.status();
  const int port = listener->port();
  std::vector<absl::Status> statuses(how.processes);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < how.processes; ++rank) {
    threads.emplace_back([&, rank, mine = rank == 0 ? *std::move(listener) : Socket()]() mutable {
      auto group = TcpProcessGroup::Create({.rank = rank,
                                            .size = how.processes,
                                            .port = port,
                                            .silence_limit_ms = how.silence_limit_ms},
                                           std::move(mine));
      ASSERT_TRUE(group.ok()) << group.status();
      statuses[rank] = RunInProcesses(
          runtime.api(), {.transport = "fake_nccl_tcp", .time_limit_us = how.time_limit_us},
          **group, rank, {.world_size = how.ranks},
          [&](Communicator& world) { return body(world, **group); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

absl::Status SumAndSplit(Communicator& world, TcpProcessGroup&) {
  std::vector<double> x(5, 1.0 + world.rank());
  SUMONCE_RETURN_IF_ERROR(world.AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kSum, "sum"));
  SUMONCE_ASSIGN_OR_RETURN(const auto twin, world.Split(0, world.rank(), "twin"));
  SUMONCE_RETURN_IF_ERROR(twin->AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kAvg, "mean"));
  EXPECT_EQ(x, std::vector<double>(5, world.size() * (world.size() + 1) / 2.0));
  return absl::OkStatus();
}

// Calls fail here and there, each with every code of NCCL: all processes end with the same status,
// which names rank and code, and give everything back. The others do not wait for the time limit:
// it is that of the test that would be over first.
TEST(ProcessRun, FailuresOfCallsEndAllProcessesAlike) {
  FakeRuntime clean({.devices = 2, .real_time = true, .record_calls = true});
  EXPECT_EQ(RunFakeProcesses(clean, {}, SumAndSplit),
            std::vector<absl::Status>(2, absl::OkStatus()));
  EXPECT_EQ(clean.Verdict(), absl::OkStatus());
  const int64_t calls = static_cast<int64_t>(clean.Calls().size());
  int code = 0;
  for (int64_t call = 1; call <= calls; call += 3) {
    code = code % (kNcclInProgress - 1) + 1;
    FakeRuntime runtime({.devices = 2, .fail_call = call, .fail_code = code, .real_time = true});
    const auto statuses = RunFakeProcesses(runtime, {.time_limit_us = 3'600'000'000}, SumAndSplit);
    EXPECT_EQ(statuses[0], statuses[1]) << call;
    // The run may have needed fewer polls than the clean one, and so not come to that call.
    if (!statuses[0].ok()) {
      EXPECT_THAT(TextOfRun(statuses[0]), AllOf(HasSubstr("fake_nccl_tcp: "), HasSubstr("rank ")));
    }
    EXPECT_THAT(runtime.Misuse(), IsEmpty()) << call << ": " << statuses[0];
    EXPECT_THAT(runtime.Leaks(), IsEmpty()) << call << ": " << statuses[0];
  }
}

TEST(ProcessRun, AStuckDeviceIsATimeOut) {
  FakeRuntime runtime({.devices = 3, .stuck_device = 1, .real_time = true});
  const auto statuses = RunFakeProcesses(runtime, {.processes = 3, .ranks = 3}, SumAndSplit);
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(KindOf(status), RunFailure::kRankLost) << status;
    EXPECT_THAT(TextOfRun(status),
                AllOf(HasSubstr("AllReduce SUM of 5 float64 (sum) on world [0 1 2]: rank "),
                      HasSubstr("did not finish within 20 ms")));
  }
  EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
}

// Its connections close as those of a process that has crashed.
TEST(ProcessRun, AProcessThatEndsIsALostRank) {
  for (int victim : {1, 2}) {
    FakeRuntime runtime({.devices = 3, .real_time = true});
    const auto statuses =
        RunFakeProcesses(runtime, {.processes = 3, .ranks = 3},
                         [victim](Communicator& world, TcpProcessGroup& group) -> absl::Status {
                           SUMONCE_RETURN_IF_ERROR(world.Barrier("all are there"));
                           if (world.rank() == victim) {
                             for (int number = 0; number < kTcpLinks; ++number)
                               group.own_link(number)->Shutdown();
                           }
                           return SumAndSplit(world, group);
                         });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(KindOf(statuses[rank]), RunFailure::kRankLost) << statuses[rank];
      if (rank == victim) continue;
      EXPECT_THAT(
          TextOfRun(statuses[rank]),
          HasSubstr("the process of rank " + std::to_string(victim) + " closed its connection"));
    }
    EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
  }
}

TEST(ProcessRun, ASilentProcessIsALostRank) {
  FakeRuntime runtime({.devices = 2, .real_time = true});
  std::atomic<bool> told = false;
  const auto statuses =
      RunFakeProcesses(runtime, {.silence_limit_ms = 2'000},
                       [&told](Communicator& world, TcpProcessGroup&) -> absl::Status {
                         if (world.rank() == 1) {
                           while (!told) std::this_thread::yield();
                           return absl::OkStatus();
                         }
                         const absl::Status status = world.Barrier("waits for rank 1");
                         told = true;
                         return status;
                       });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(KindOf(status), RunFailure::kRankLost) << status;
    EXPECT_THAT(TextOfRun(status), HasSubstr("the process of rank 1 was silent for 2000 ms"));
  }
  EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
}

TEST(ProcessRun, ProcessesBeyondTheWorldRunNothing) {
  FakeRuntime runtime({.devices = 3, .real_time = true});
  std::atomic<int> bodies = 0;
  const auto statuses = RunFakeProcesses(runtime, {.processes = 3, .ranks = 2},
                                         [&](Communicator& world, TcpProcessGroup& group) {
                                           ++bodies;
                                           return SumAndSplit(world, group);
                                         });
  EXPECT_EQ(statuses, std::vector<absl::Status>(3, absl::OkStatus()));
  EXPECT_EQ(bodies, 2);
  for (const absl::Status& status : RunFakeProcesses(runtime, {.ranks = 3}, SumAndSplit)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(TextOfRun(status), HasSubstr("a world of 3 ranks, and 2 processes"));
  }
}

// Several runs over the same processes: what one leaves on the links does not reach the next.
TEST(ProcessRun, RunsFollowEachOther) {
  FakeRuntime runtime({.devices = 2, .real_time = true});
  absl::StatusOr<Socket> listener = Socket::Listen(0, true);
  const int port = listener->port();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank, mine = rank == 0 ? *std::move(listener) : Socket()]() mutable {
      auto group =
          TcpProcessGroup::Create({.rank = rank, .size = 2, .port = port}, std::move(mine));
      ASSERT_TRUE(group.ok());
      for (int round = 0; round < 6; ++round) {
        const bool fails = round % 2 == 1;
        const absl::Status status = RunInProcesses(
            runtime.api(), {.transport = "fake_nccl_tcp", .time_limit_us = 20'000}, **group, rank,
            {.world_size = 2}, [&](Communicator& world) -> absl::Status {
              if (fails && world.rank() == round / 2 % 2) return absl::DataLossError("on purpose");
              return SumAndSplit(world, **group);
            });
        EXPECT_EQ(status, fails ? absl::DataLossError("on purpose") : absl::OkStatus());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
}

// A process that was given up while it was busy comes back with questions of the run that is over.
// It stays lost: no later run takes them for its own.
TEST(ProcessRun, AProcessThatWasGivenUpStaysLost) {
  FakeRuntime runtime({.devices = 2, .real_time = true});
  absl::StatusOr<Socket> listener = Socket::Listen(0, true);
  const int port = listener->port();
  std::atomic<bool> told = false;
  const auto busy = [&told](Communicator& world) -> absl::Status {
    if (world.rank() == 0) {
      const absl::Status status = world.Barrier("waits for rank 1");
      told = true;
      return status;
    }
    while (!told) std::this_thread::yield();
    return absl::OkStatus();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank, mine = rank == 0 ? *std::move(listener) : Socket()]() mutable {
      auto group = TcpProcessGroup::Create(
          {.rank = rank, .size = 2, .port = port, .silence_limit_ms = 2'000}, std::move(mine));
      ASSERT_TRUE(group.ok());
      const auto run = [&](const RankBody& body) {
        return RunInProcesses(runtime.api(), {.transport = "fake_nccl_tcp"}, **group, rank,
                              {.world_size = 2}, body);
      };
      EXPECT_THAT(TextOfRun(run(busy)), HasSubstr("the process of rank 1 was silent for 2000 ms"));
      const absl::Status later =
          run([&](Communicator& world) { return SumAndSplit(world, **group); });
      EXPECT_EQ(KindOf(later), RunFailure::kRankLost) << later;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
}

}  // namespace
}  // namespace sumonce::nccl

// The NCCL transport over the fake: what the conformance suite does not see. Errors of every call,
// stuck devices, native sums, large payloads, and that the devices are used by the rules.
#include "comm/nccl/nccl_plane.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <set>

#include "base/fiber_annotations.h"
#include "base/status.h"
#include "comm/conformance/cases.h"
#include "comm/errors.h"
#include "comm/nccl/fake/fake_runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce::nccl {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kLimitUs = 20'000;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

absl::Status RunOn(FakeRuntime& runtime, int ranks, const RankBody& body,
                   ExecutorKind executor = ExecutorKind::kFibers, bool native = false) {
  return RunOnDevices(
      runtime.api(), {.transport = "fake_nccl", .native_sums = native, .time_limit_us = kLimitUs},
      {.world_size = ranks, .executor = {.kind = executor}, .native_sums = native}, body);
}

// One of everything that the plane does.
absl::Status EveryCall(Communicator& world) {
  const int size = world.size();
  std::vector<double> one(6, 1.0 + world.rank());
  std::vector<double> all(6 * size, 1.0);
  SUMONCE_RETURN_IF_ERROR(world.AllReduce(BufferOf(one), BufferOf(one), ReduceOp::kSum, "sum"));
  SUMONCE_RETURN_IF_ERROR(world.AllGather(BufferOf(one), BufferOf(all), "gather"));
  SUMONCE_RETURN_IF_ERROR(
      world.ReduceScatter(BufferOf(all), BufferOf(one), ReduceOp::kAvg, "scatter"));
  SUMONCE_RETURN_IF_ERROR(world.AllToAll(BufferOf(all), BufferOf(all), "exchange"));
  SUMONCE_RETURN_IF_ERROR(world.Broadcast(BufferOf(one), BufferOf(one), size - 1, "spread"));
  SUMONCE_ASSIGN_OR_RETURN(const auto half, world.Split(world.rank() % 2, world.rank(), "half"));
  SUMONCE_RETURN_IF_ERROR(half->AllReduce(BufferOf(one), BufferOf(one), ReduceOp::kMax, "max"));
  if (world.rank() == 0) SUMONCE_RETURN_IF_ERROR(world.Send(BufferOf(one), size - 1, "message"));
  if (world.rank() == size - 1)
    SUMONCE_RETURN_IF_ERROR(world.Recv(BufferOf(all, 0, 6), 0, "message"));
  return world.Barrier("end");
}

// What every failing run owes: all ranks end, none is told success by a failed call and another
// status by the run, nothing is left on the devices, and no rule was broken on the way.
absl::Status ExpectCleanFailure(FakeOptions options, int ranks,
                                ExecutorKind executor = ExecutorKind::kFibers) {
  FakeRuntime runtime(options);
  std::atomic<int> ended = 0;
  std::atomic<int> entered = 0;
  const absl::Status status = RunOn(
      runtime, ranks,
      [&](Communicator& world) {
        ++entered;
        const absl::Status mine = EveryCall(world);
        ++ended;
        return mine;
      },
      executor);
  EXPECT_EQ(ended, entered);
  EXPECT_THAT(runtime.Leaks(), IsEmpty()) << status;
  EXPECT_THAT(runtime.Misuse(), IsEmpty()) << status;
  return status;
}

std::vector<std::string> CallsOfACleanRun(int ranks) {
  FakeRuntime runtime({.devices = ranks, .record_calls = true});
  EXPECT_EQ(RunOn(runtime, ranks, EveryCall), absl::OkStatus());
  EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
  return runtime.Calls();
}

constexpr int kCudaFailures[] = {kCudaErrorInvalidValue,
                                 kCudaErrorMemoryAllocation,
                                 kCudaErrorInitializationError,
                                 kCudaErrorInsufficientDriver,
                                 kCudaErrorDevicesUnavailable,
                                 kCudaErrorNoDevice,
                                 kCudaErrorInvalidDevice,
                                 kCudaErrorNoKernelImageForDevice,
                                 kCudaErrorEccUncorrectable,
                                 kCudaErrorInvalidResourceHandle,
                                 kCudaErrorIllegalAddress,
                                 kCudaErrorLaunchFailure,
                                 kCudaErrorUnknown};

// Every call of a run fails once with every code of its library: the run ends with a status that
// names the call and the code, all ranks end, and nothing is left on the devices.
TEST(NcclPlane, EveryCallMayFailWithEveryCode) {
#if defined(SUMONCE_TSAN)
  GTEST_SKIP() << "thousands of runs, and ThreadSanitizer keeps memory for every thread that ever "
                  "was; the other builds run it";
#endif
  const std::vector<std::string> calls = CallsOfACleanRun(3);
  std::set<std::string> failed;
  for (size_t call = 0; call < calls.size(); ++call) {
    const bool nccl = calls[call].starts_with("nccl");
    std::vector<int> codes(std::begin(kCudaFailures), std::end(kCudaFailures));
    if (nccl) {
      codes.resize(kNcclInProgress - 1);
      std::iota(codes.begin(), codes.end(), 1);
    }
    for (int code : codes) {
      FakeOptions options{
          .devices = 3, .fail_call = static_cast<int64_t>(call) + 1, .fail_code = code};
      const absl::Status status = ExpectCleanFailure(options, 3);
      FakeRuntime names;
      const std::string name =
          nccl ? NcclResultName(code) : std::string(names.api().cuda.GetErrorName(code));
      const std::string said =
          calls[call] == "ordered_sum" ? "the ordered sum's launch" : calls[call];
      ASSERT_FALSE(status.ok()) << calls[call] << " " << call << ": " << name;
      ASSERT_THAT(Message(status), AllOf(HasSubstr("fake_nccl: "), HasSubstr(said), HasSubstr(name),
                                         HasSubstr("rank ")));
      failed.insert(calls[call]);
    }
  }
  // The run has every entry of the tables but those of native sums, and those that never fail or
  // only clean up after a failure.
  EXPECT_EQ(failed.size(), 23u) << testing::PrintToString(failed);
}

// The same for what a communicator reports of itself between calls.
TEST(NcclPlane, EveryAsynchronousErrorEndsTheRun) {
  const std::vector<std::string> calls = CallsOfACleanRun(3);
  for (size_t call = 0; call < calls.size(); ++call) {
    if (calls[call] != "ncclCommGetAsyncError") continue;
    for (int code = 1; code < kNcclInProgress; ++code) {
      const absl::Status status = ExpectCleanFailure({.devices = 3,
                                                      .fail_call = static_cast<int64_t>(call) + 1,
                                                      .fail_code = code,
                                                      .fail_as_state = true},
                                                     3);
      ASSERT_THAT(Message(status), AllOf(HasSubstr("fake_nccl: "), HasSubstr("rank "),
                                         HasSubstr(NcclResultName(code))));
    }
  }
}

// "In progress" is no error: whatever call says so, the run is the same.
TEST(NcclPlane, InProgressIsNoError) {
  const std::vector<std::string> calls = CallsOfACleanRun(2);
  for (size_t call = 0; call < calls.size(); ++call) {
    if (!calls[call].starts_with("nccl")) continue;
    FakeRuntime runtime({.devices = 2,
                         .fail_call = static_cast<int64_t>(call) + 1,
                         .fail_code = kNcclInProgress,
                         .fail_as_state = true});
    EXPECT_EQ(RunOn(runtime, 2, EveryCall), absl::OkStatus()) << calls[call] << " " << call;
    EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
  }
}

// Ranks on threads end as well, whoever is in which call when another's fails.
TEST(NcclPlane, FailuresEndRanksOnThreads) {
  const int64_t calls = static_cast<int64_t>(CallsOfACleanRun(4).size());
  for (int64_t call = 1; call <= calls; call += 7) {
    // A run on threads may need fewer polls, and so not come to the last calls.
    ExpectCleanFailure({.devices = 4, .fail_call = call, .fail_code = kNcclSystemError}, 4,
                       ExecutorKind::kThreads)
        .IgnoreError();
  }
}

TEST(NcclPlane, AStuckDeviceIsNamedAndAborted) {
  const absl::Status status = ExpectCleanFailure({.devices = 4, .stuck_device = 2}, 4);
  EXPECT_EQ(KindOf(status), RunFailure::kRankLost) << status;
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("fake_nccl: AllReduce SUM of 6 float64 (sum) on world [0 1 2 3]: "),
                    HasSubstr("ranks 0 1 2 3 did not finish within 20 ms")));
}

// What NCCL finds out while a collective runs ends the wait for it.
TEST(NcclPlane, AnAsynchronousErrorEndsAWait) {
  FakeRuntime stuck({.devices = 2, .stuck_device = 1, .record_calls = true});
  EXPECT_EQ(KindOf(RunOn(stuck, 2, EveryCall)), RunFailure::kRankLost);
  const std::vector<std::string> calls = stuck.Calls();
  size_t call = calls.size() / 2;  // most calls are those of the wait
  while (calls[call] != "ncclCommGetAsyncError") ++call;
  ASSERT_EQ(calls[call - 1], "cudaStreamQuery");
  const absl::Status status = ExpectCleanFailure({.devices = 2,
                                                  .fail_call = static_cast<int64_t>(call) + 1,
                                                  .fail_code = kNcclSystemError,
                                                  .fail_as_state = true,
                                                  .stuck_device = 1},
                                                 2);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("(sum) on world [0 1]: rank "), HasSubstr("an operation under way"),
                    HasSubstr("ncclSystemError")));
}

// Those that do not depend on the stuck one have finished: only its group is named.
TEST(NcclPlane, OnlyTheRanksThatWaitAreNamed) {
  FakeRuntime runtime({.devices = 4, .stuck_device = 2});
  const absl::Status status = RunOn(runtime, 4, [](Communicator& world) -> absl::Status {
    SUMONCE_ASSIGN_OR_RETURN(const auto pair, world.Split(world.rank() / 2, world.rank(), "tp"));
    std::vector<double> x(3, 1.0);
    return pair->AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kSum, "grads");
  });
  EXPECT_EQ(KindOf(status), RunFailure::kRankLost) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("(grads) on tp [2 3]: ranks 2 3 did not finish")));
  EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
}

TEST(NcclPlane, CommunicatorsThatNeverAcceptAreATimeOut) {
  const absl::Status status = ExpectCleanFailure({.devices = 2, .never_accept = true}, 2);
  EXPECT_EQ(KindOf(status), RunFailure::kRankLost) << status;
  EXPECT_THAT(Message(status), AllOf(HasSubstr("the start of world [0 1]"), HasSubstr("ranks 0 1"),
                                     HasSubstr("within 20 ms")));
}

TEST(NcclPlane, TooFewDevicesSaysHowManyThereAre) {
  const absl::Status status = ExpectCleanFailure({.devices = 2}, 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("3 ranks need as many GPUs, and there are 2"));
  EXPECT_THAT(Message(ExpectCleanFailure({.driver = false}, 1)),
              HasSubstr("cudaErrorInsufficientDriver"));
  EXPECT_THAT(Message(ExpectCleanFailure({.devices = 0}, 1)), HasSubstr("cudaErrorNoDevice"));
}

// NCCL 2.28 refuses two ranks on one device of one process; so does the fake.
TEST(NcclPlane, TwoRanksOnOneDeviceAreNcclsToRefuse) {
  FakeRuntime runtime({.devices = 1});
  const absl::Status status = RunOnDevices(
      runtime.api(), {.transport = "nccl", .time_limit_us = kLimitUs, .share_devices = true},
      {.world_size = 2}, EveryCall);
  EXPECT_THAT(Message(status), HasSubstr("ncclInvalidUsage"));
  EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
}

// Native sums say that they promise no order, and the fake's has another one.
TEST(NcclPlane, NativeSumsPromiseNoOrder) {
  FakeRuntime runtime({.devices = 5, .record_calls = true});
  int differing = 0;
  const absl::Status status = RunOn(
      runtime, 5,
      [&](Communicator& world) -> absl::Status {
        EXPECT_FALSE(world.properties().ordered_sums);
        std::vector<double> in = InputsOf<double>(world.rank(), 35);
        std::vector<double> out(35);
        std::vector<double> part(7);
        SUMONCE_RETURN_IF_ERROR(
            world.AllReduce(BufferOf(in), BufferOf(out), ReduceOp::kSum, "native"));
        SUMONCE_RETURN_IF_ERROR(
            world.ReduceScatter(BufferOf(in), BufferOf(part), ReduceOp::kSum, "native"));
        for (int64_t i = 0; i < 7; ++i) {
          EXPECT_EQ(part[i], out[world.rank() * 7 + i]);
          if (out[i] != ExpectedReduction<double>(ReduceOp::kSum, 5, i)) ++differing;
        }
        std::vector<double> whole = {1.0 + world.rank()};
        SUMONCE_RETURN_IF_ERROR(
            world.AllReduce(BufferOf(whole), BufferOf(whole), ReduceOp::kAvg, "mean"));
        EXPECT_EQ(whole[0], 3.0);
        SUMONCE_RETURN_IF_ERROR(
            world.AllReduce(BufferOf(whole), BufferOf(whole), ReduceOp::kMax, "max"));
        EXPECT_EQ(whole[0], 3.0);
        return absl::OkStatus();
      },
      ExecutorKind::kFibers, /*native=*/true);
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_GT(differing, 0);
  EXPECT_THAT(runtime.Calls(), AllOf(Contains("ncclAllReduce"), Contains("ncclReduceScatter"),
                                     testing::Not(Contains("ordered_sum"))));
  EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
}

// Payloads above what a rank's buffers hold go piece by piece, in place too, and the last piece is
// no multiple of anything.
TEST(NcclPlane, LargePayloadsGoInPieces) {
  FakeRuntime runtime({.devices = 3});
  constexpr int64_t kCount = (9 << 20) / 8 + 5;
  EXPECT_EQ(RunOn(runtime, 3,
                  [](Communicator& world) -> absl::Status {
                    std::vector<double> x = InputsOf<double>(world.rank(), kCount);
                    SUMONCE_RETURN_IF_ERROR(
                        world.AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kSum, "large"));
                    for (int64_t i = 0; i < kCount; i += 997)
                      EXPECT_EQ(x[i], ExpectedReduction<double>(ReduceOp::kSum, 3, i)) << i;
                    std::vector<double> all(3 * kCount);
                    std::vector<double> own(kCount, 1.0 + world.rank());
                    SUMONCE_RETURN_IF_ERROR(world.AllGather(BufferOf(own), BufferOf(all), "large"));
                    EXPECT_EQ(all[2 * kCount - 1], 2.0);
                    EXPECT_EQ(all[2 * kCount], 3.0);
                    SUMONCE_RETURN_IF_ERROR(
                        world.ReduceScatter(BufferOf(all), BufferOf(own), ReduceOp::kAvg, "large"));
                    EXPECT_EQ(own, std::vector<double>(kCount, 1.0 + world.rank()));
                    return absl::OkStatus();
                  }),
            absl::OkStatus());
  EXPECT_EQ(runtime.Verdict(), absl::OkStatus());
}

// Groups that are gone give their communicators back while the run goes on.
TEST(NcclPlane, GroupsEndWithTheirHandles) {
  FakeRuntime runtime({.devices = 2});
  std::vector<size_t> leaks;
  EXPECT_EQ(RunOn(runtime, 2,
                  [&](Communicator& world) -> absl::Status {
                    for (int round = 0; round < 3; ++round) {
                      {
                        SUMONCE_ASSIGN_OR_RETURN(const auto twin, world.Split(0, 0, "twin"));
                        SUMONCE_RETURN_IF_ERROR(twin->Barrier("together"));
                      }
                      SUMONCE_RETURN_IF_ERROR(world.Barrier("both gave it up"));
                      if (world.rank() == 0) leaks.push_back(runtime.Leaks().size());
                    }
                    return absl::OkStatus();
                  }),
            absl::OkStatus());
  EXPECT_EQ(leaks, std::vector<size_t>(3, leaks[0]));
}

}  // namespace
}  // namespace sumonce::nccl

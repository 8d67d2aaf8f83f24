// How every transport must fail: the same error on every rank, by name, at once, and nothing
// written.
#include <atomic>
#include <memory>
#include <stdexcept>

#include "base/status.h"
#include "comm/conformance/cases.h"
#include "comm/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Failures : public FailureConformanceTest {};

// Rank 0's part: by each peer's hello it is past all earlier calls.
void AbortWhenAllHaveStarted(Communicator& world, Communicator& twin, const absl::Status& reason) {
  for (int peer = 1; peer < world.size(); ++peer) {
    EXPECT_EQ(world.Recv({}, peer, "hello"), absl::OkStatus());
  }
  const auto pending = twin.Start({.kind = CallKind::kBarrier});
  world.Abort(reason);
  world.Abort(absl::InternalError("too late: the first counts"));
  EXPECT_EQ((*pending)->Wait(), reason);
}

TEST_P(Failures, OtherKind) {
  const std::string message = MismatchOf(MakeCall(CallKind::kAllReduce, 64, "usual"),
                                         MakeCall(CallKind::kBroadcast, 64, "odd"));
  const std::string last = std::to_string(size() - 1);
  EXPECT_THAT(message,
              HasSubstr("rank 0 calls AllReduce SUM of 64 float64 (usual) while rank " + last +
                        " calls Broadcast of 64 float64 from root 0 (odd) on group world [0 1"));
  MismatchOf(MakeCall(CallKind::kAllReduce, 64, "usual"), MakeCall(CallKind::kBarrier, 0, "odd"));
}

TEST_P(Failures, OtherCount) {
  EXPECT_THAT(
      MismatchOf(MakeCall(CallKind::kAllReduce, 64, "a"), MakeCall(CallKind::kAllReduce, 32, "b")),
      AllOf(HasSubstr("AllReduce SUM of 64 float64 (a)"),
            HasSubstr("AllReduce SUM of 32 float64 (b)")));
  MismatchOf(MakeCall(CallKind::kBroadcast, 0, "a"), MakeCall(CallKind::kBroadcast, 1, "b"));
}

TEST_P(Failures, OtherDtype) {
  Call odd = MakeCall(CallKind::kAllReduce, 64, "b");
  odd.in.dtype = odd.out.dtype = DType::kFloat32;
  EXPECT_THAT(MismatchOf(MakeCall(CallKind::kAllReduce, 64, "a"), odd),
              HasSubstr("SUM of 64 float32 (b)"));
}

TEST_P(Failures, OtherOperation) {
  Call odd = MakeCall(CallKind::kAllReduce, 64, "b");
  odd.op = ReduceOp::kAvg;
  EXPECT_THAT(MismatchOf(MakeCall(CallKind::kAllReduce, 64, "a"), odd),
              HasSubstr("AVG of 64 float64 (b)"));
}

TEST_P(Failures, OtherRoot) {
  Call odd = MakeCall(CallKind::kBroadcast, 64, "b");
  odd.root = 1;
  EXPECT_THAT(MismatchOf(MakeCall(CallKind::kBroadcast, 64, "a"), odd),
              HasSubstr("from root 1 (b)"));
}

// A Split is a call like any other: it meets no AllReduce.
TEST_P(Failures, SplitAgainstAllReduce) {
  const absl::Status result = RunSeeing(RunFailure::kCollectiveMismatch, [](Communicator& world) {
    std::vector<double> x(1);
    if (world.rank() == 0) return world.Split(0, 0, "groups").status();
    return world.AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kSum, "early");
  });
  EXPECT_THAT(MessageOf(result),
              HasSubstr("rank 0 calls Split (groups) while rank 1 calls AllReduce SUM"));
}

TEST_P(Failures, SendAndRecvOfOtherCounts) {
  const absl::Status result = RunSeeing(RunFailure::kCollectiveMismatch, [](Communicator& world) {
    std::vector<double> x(8, 5.0);
    if (world.rank() == 0) return world.Send(BufferOf(x), 1, "out");
    if (world.rank() > 1) return world.Barrier("bystander");
    const absl::Status status = world.Recv(BufferOf(x, 0, 4), 0, "in");
    EXPECT_EQ(x, std::vector<double>(8, 5.0));
    return status;
  });
  EXPECT_THAT(MessageOf(result),
              HasSubstr("rank 0 calls Send of 8 float64 to peer 1 (out) while rank 1 calls "
                        "Recv of 4 float64 from peer 0 (in) on group world [0 1"));
}

// A mismatch inside one group names its world ranks, and ends the ranks outside as well.
TEST_P(Failures, MismatchInASubgroupEndsTheWorld) {
  const absl::Status result =
      RunSeeing(RunFailure::kCollectiveMismatch, [](Communicator& world) -> absl::Status {
        SUMONCE_ASSIGN_OR_RETURN(const auto pair, world.Split((world.size() - 1 - world.rank()) / 2,
                                                              world.rank(), "tp"));
        if (world.rank() < world.size() - 2) return world.Barrier("all");
        std::vector<double> x(world.rank() == world.size() - 1 ? 3 : 4);
        return pair->AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kSum, "grads");
      });
  const std::string a = std::to_string(size() - 2);
  const std::string b = std::to_string(size() - 1);
  EXPECT_THAT(MessageOf(result),
              AllOf(HasSubstr("rank " + a + " calls AllReduce SUM of 4 float64 (grads)"),
                    HasSubstr("on group tp [" + a + " " + b + "]")));
}

// Rank 0 enters two groups in the other order than the rest: each group waits for the other. Found
// at once.
TEST_P(Failures, OrderOfTwoGroupsIsADeadlock) {
  const absl::Status result =
      RunSeeing(RunFailure::kDeadlock, [](Communicator& world) -> absl::Status {
        SUMONCE_ASSIGN_OR_RETURN(const auto a, world.Split(0, world.rank(), "a"));
        SUMONCE_ASSIGN_OR_RETURN(const auto b, world.Split(0, world.rank(), "b"));
        SUMONCE_RETURN_IF_ERROR((world.rank() == 0 ? a : b)->Barrier("first"));
        return (world.rank() == 0 ? b : a)->Barrier("second");
      });
  EXPECT_THAT(MessageOf(result), HasSubstr("rank 0 waits for Barrier (first) on a [0 1"));
  EXPECT_THAT(MessageOf(result), HasSubstr("rank 1 waits for Barrier (first) on b [0 1"));
  EXPECT_THAT(MessageOf(result), HasSubstr(": rank 0 missing"));
}

TEST_P(Failures, BlockingSendsInARingAreADeadlock) {
  const absl::Status result = RunSeeing(RunFailure::kDeadlock, [](Communicator& world) {
    std::vector<double> x(1);
    return world.Send(BufferOf(x), (world.rank() + 1) % world.size(), "gift");
  });
  EXPECT_THAT(MessageOf(result),
              HasSubstr("rank 0 waits for Send of 1 float64 to peer 1 (gift) on world [0 1"));
}

TEST_P(Failures, ARankThatLeavesEarlyIsNamed) {
  const absl::Status result = Run([](Communicator& world) {
    if (world.rank() == 1) return absl::OkStatus();
    const absl::Status status = world.Barrier("late");
    EXPECT_EQ(KindOf(status), RunFailure::kDeadlock);
    return status;
  });
  EXPECT_EQ(KindOf(result), RunFailure::kDeadlock) << result;
  EXPECT_THAT(MessageOf(result),
              AllOf(HasSubstr("rank 0 waits for Barrier (late) on world [0 1"),
                    HasSubstr(": rank 1 missing"), HasSubstr("\n  rank 1 has finished")));
}

// Whatever state the others are in, they see the failing rank's own status, and so does the caller.
TEST_P(Failures, OneRanksErrorEndsAll) {
  const absl::Status mine = absl::DataLossError("rank 1's own");
  const absl::Status result = Run([&](Communicator& world) {
    if (world.rank() == 1) return mine;
    absl::Status status = absl::OkStatus();
    while (status.ok()) {
      std::vector<double> x(1);
      status = world.rank() == 0 ? world.Recv(BufferOf(x), 1, "never") : world.Barrier("never");
    }
    EXPECT_EQ(status, mine);
    return absl::CancelledError("told");
  });
  EXPECT_EQ(result, mine);
}

TEST_P(Failures, AnExceptionEndsAllAsInternal) {
  const absl::Status result = Run([&](Communicator& world) -> absl::Status {
    if (world.rank() == 1) throw std::runtime_error("thrown in the body");
    return world.Barrier("never");
  });
  EXPECT_EQ(result.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(MessageOf(result), HasSubstr("rank 1 threw: thrown in the body"));
}

// Abort before a call, during a wait and after a call: pending and later calls return its status,
// on every group.
TEST_P(Failures, AbortReachesEveryState) {
  const absl::Status reason = absl::ResourceExhaustedError("watchdog");
  std::atomic<int> told = 0;
  const absl::Status result = Run([&](Communicator& world) -> absl::Status {
    SUMONCE_ASSIGN_OR_RETURN(const auto twin, world.Split(0, world.rank(), "twin"));
    if (world.rank() == 0) {
      AbortWhenAllHaveStarted(world, *twin, reason);
    } else {
      const auto hello = world.Start({.kind = CallKind::kSend, .root = 0});
      EXPECT_EQ(world.Barrier("during the wait"), reason);
    }
    EXPECT_EQ(twin->Barrier("later"), reason);
    EXPECT_EQ(world.Split(0, 0, "later").status(), reason);
    ++told;
    return absl::OkStatus();
  });
  EXPECT_EQ(told, ranks_here());
  EXPECT_EQ(result, reason) << "an aborted run did not succeed, whatever its ranks return";
}

// Some calls with itself, to let time pass.
absl::Status Dawdle(Communicator& world, int calls) {
  for (int k = 0; k < calls; ++k) {
    const auto send = world.Start({.kind = CallKind::kSend, .root = world.rank()});
    SUMONCE_RETURN_IF_ERROR(world.Recv({}, world.rank(), "self"));
    SUMONCE_RETURN_IF_ERROR((*send)->Wait());
  }
  return absl::OkStatus();
}

// The last rank aborts while the others reduce, at some moment of a transfer; their buffers die as
// they return. Nobody may still read or write them then: AddressSanitizer and ThreadSanitizer
// watch.
TEST_P(Failures, AbortDuringTransfersLeavesNoReaderBehind) {
  // Fibers never switch inside a transfer: there only the states between transfers are new.
  const int rounds = GetParam().executor == ExecutorKind::kThreads ? 20 : 3;
  for (int round = 0; round < rounds; ++round) {
    const absl::Status result = RunSchedule(7, [&](Communicator& world) -> absl::Status {
      const bool outsider = world.rank() == world.size() - 1;
      SUMONCE_ASSIGN_OR_RETURN(const auto group, world.Split(outsider, world.rank(), "group"));
      if (outsider) {
        SUMONCE_RETURN_IF_ERROR(Dawdle(world, 2 * round));
        world.Abort(absl::CancelledError("enough"));
        return absl::OkStatus();
      }
      while (true) {
        std::vector<double> x(100000 / world.size(), 1.0);
        SUMONCE_RETURN_IF_ERROR(group->AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kSum, "long"));
      }
    });
    EXPECT_EQ(result.code(), absl::StatusCode::kCancelled);
  }
}

// A Work destroyed without Wait is taken back: peers do not read its dead buffer, and are told.
// What the transport's own reductions have begun is seen through instead.
TEST_P(Failures, ADroppedWorkIsTakenBack) {
  const absl::Status result = Run([](Communicator& world) -> absl::Status {
    std::vector<double> x(8, 1.0);
    const Call call{
        .kind = CallKind::kAllReduce, .in = BufferOf(x), .out = BufferOf(x), .label = "x"};
    if (world.rank() == 1) {
      SUMONCE_RETURN_IF_ERROR(world.Start(call).status());
      return world.Recv(BufferOf(x), 0, "go on");
    }
    if (world.rank() == 0) SUMONCE_RETURN_IF_ERROR(world.Send(BufferOf(x), 1, "go on"));
    return world.Run(call);
  });
  if (native() && group() != nullptr) {
    EXPECT_EQ(result, absl::OkStatus());
    return;
  }
  EXPECT_EQ(KindOf(result), RunFailure::kDeadlock) << result;
  EXPECT_THAT(MessageOf(result), HasSubstr("rank 1 gave it up without waiting"));
}

// If all had come, a dropped Work is seen through instead: the others get the right sum.
TEST_P(Failures, AWorkDroppedAfterTheMatchIsSeenThrough) {
  EXPECT_EQ(
      Run([](Communicator& world) -> absl::Status {
        std::vector<double> x(3000, 1.0);
        {
          SUMONCE_ASSIGN_OR_RETURN(
              const auto work,
              world.Start({.kind = CallKind::kAllReduce, .in = BufferOf(x), .out = BufferOf(x)}));
          SUMONCE_RETURN_IF_ERROR(world.Barrier("all have started"));
          if (world.rank() != 0) SUMONCE_RETURN_IF_ERROR(work->Wait());
        }
        EXPECT_EQ(x, std::vector<double>(3000, world.size()));
        return absl::OkStatus();
      }),
      absl::OkStatus());
}

// What needs no peer to be wrong comes back from Start, with the call, the value and the
// expectation.
TEST_P(Failures, InvalidArgumentsComeBackAtOnce) {
  std::vector<double> x(64 * size());
  const auto start = [&](Communicator& world, Call call) {
    const absl::Status status = world.Start(call).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(world.Run(std::move(call)), status);
    return MessageOf(status);
  };
  EXPECT_EQ(
      Run([&](Communicator& world) -> absl::Status {
        if (world.rank() != 0) return absl::OkStatus();
        const Buffer two = {x.data(), 2};
        const Buffer shifted = {x.data() + 1, 2};
        const Buffer floats = {x.data() + 8, 2, DType::kFloat32};
        const Buffer apart = {x.data() + 8, 2};
        const Buffer ints = {x.data() + 8, 2, DType::kInt64};
        const Buffer bytes = {x.data(), 2, DType::kUint8};
        const CallKind all_reduce = CallKind::kAllReduce;
        EXPECT_THAT(
            start(world, {.kind = all_reduce, .in = {nullptr, 2}, .out = two, .label = "q"}),
            HasSubstr("AllReduce SUM of 2 float64 (q): in is null"));
        EXPECT_THAT(start(world, {.kind = all_reduce, .in = two, .out = {x.data(), -1}}),
                    HasSubstr("out has the negative count -1"));
        EXPECT_THAT(start(world, {.kind = all_reduce, .in = two, .out = {x.data() + 8, 3}}),
                    HasSubstr("in has 2 elements and out 3"));
        EXPECT_THAT(start(world, {.kind = all_reduce, .in = two, .out = floats}),
                    HasSubstr("in is float64 and out float32"));
        EXPECT_THAT(start(world, {.kind = all_reduce, .in = two, .out = shifted}),
                    HasSubstr("overlap"));
        EXPECT_THAT(
            start(world, {.kind = all_reduce, .in = ints, .out = ints, .op = ReduceOp::kAvg}),
            HasSubstr("average of integers"));
        EXPECT_THAT(start(world, {.kind = all_reduce, .in = bytes, .out = bytes}),
                    HasSubstr("moved, not reduced"));
        EXPECT_THAT(
            start(world, {.kind = CallKind::kReduceScatter, .in = {x.data(), 5}, .out = apart}),
            HasSubstr("in has 5 elements, expected " + std::to_string(world.size()) +
                      " times out's 2"));
        EXPECT_THAT(start(world, {.kind = CallKind::kAllGather, .in = apart, .out = {x.data(), 5}}),
                    HasSubstr("out has 5 elements, expected"));
        EXPECT_THAT(start(world, {.kind = CallKind::kAllToAll,
                                  .in = {x.data(), world.size() + 1},
                                  .out = {x.data(), world.size() + 1}}),
                    HasSubstr("cannot be cut into"));
        EXPECT_THAT(
            start(world,
                  {.kind = CallKind::kBroadcast, .in = two, .out = two, .root = world.size()}),
            HasSubstr("no rank " + std::to_string(world.size())));
        EXPECT_THAT(start(world, {.kind = CallKind::kSend, .in = two, .root = -1}),
                    HasSubstr("no rank -1"));
        EXPECT_THAT(start(world, {.kind = CallKind::kSplit}),
                    HasSubstr("Communicator::Split only"));
        const Buffer device = {x.data(), 2, DType::kFloat64, MemoryKind::kDevice};
        EXPECT_THAT(start(world, {.kind = all_reduce, .in = device, .out = device}),
                    HasSubstr("device memory"));
        return absl::OkStatus();
      }),
      absl::OkStatus());
}

TEST_P(Failures, AWorkIsWaitedForOnce) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              SUMONCE_ASSIGN_OR_RETURN(const auto work, world.Start({.kind = CallKind::kBarrier}));
              SUMONCE_RETURN_IF_ERROR(work->Wait());
              EXPECT_EQ(work->Wait().code(), absl::StatusCode::kFailedPrecondition);
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Every, Failures,
                         testing::ValuesIn(ConformanceCases({2, 3, 4, 8, 16, 64}, {2, 5})),
                         CaseName);

}  // namespace
}  // namespace sumonce

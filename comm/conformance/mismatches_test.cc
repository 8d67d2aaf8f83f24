// Every pair of different calls, every argument that can differ, and an abort in every state of a
// call: the same error on every rank, and nothing written.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/conformance/cases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::HasSubstr;

class Mismatches : public FailureConformanceTest {
 protected:
  // A call of `kind` whose payload has `count` elements on a world of this size.
  Call Valid(CallKind kind, int64_t count) const {
    Call call = MakeCall(kind, count, std::string(Name(kind)));
    if (kind == CallKind::kReduceScatter || kind == CallKind::kAllToAll) call.in.count *= size();
    if (kind == CallKind::kAllGather || kind == CallKind::kAllToAll) call.out.count *= size();
    return call;
  }
};

constexpr CallKind kCollectives[] = {CallKind::kAllReduce, CallKind::kReduceScatter,
                                     CallKind::kAllGather, CallKind::kAllToAll,
                                     CallKind::kBroadcast, CallKind::kBarrier};

TEST_P(Mismatches, EveryPairOfKinds) {
  for (CallKind usual : kCollectives) {
    for (CallKind odd : kCollectives) {
      if (usual == odd) continue;
      const std::string message = MismatchOf(Valid(usual, 8), Valid(odd, 8));
      EXPECT_THAT(message, HasSubstr("rank 0 calls " + Describe(Valid(usual, 8))));
      EXPECT_THAT(message, HasSubstr("rank " + std::to_string(size() - 1) + " calls " +
                                     Describe(Valid(odd, 8))));
    }
  }
}

TEST_P(Mismatches, EveryArgumentOfEveryKind) {
  for (CallKind kind : kCollectives) {
    if (kind == CallKind::kBarrier) continue;
    const Call usual = Valid(kind, 8);
    MismatchOf(usual, Valid(kind, 4));
    MismatchOf(usual, Valid(kind, 0));
    for (DType dtype : {DType::kFloat32, DType::kInt64, DType::kBFloat16}) {
      Call odd = usual;
      odd.in.dtype = odd.out.dtype = dtype;
      MismatchOf(usual, odd);
    }
    Call odd = usual;
    odd.op = ReduceOp::kMax;
    odd.root = 1;
    const bool matters = kind == CallKind::kAllReduce || kind == CallKind::kReduceScatter ||
                         kind == CallKind::kBroadcast;
    if (matters) MismatchOf(usual, odd);
  }
}

// Labels are who asks: they differ without harm. So do the roots and operations of calls that have
// none, and which of the ranks work in place.
TEST_P(Mismatches, WhatMayDiffer) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              std::vector<double> in(2, 1.0);
              std::vector<double> out(2);
              Call call{.kind = CallKind::kAllReduce,
                        .in = BufferOf(in),
                        .out = world.rank() % 2 == 0 ? BufferOf(in) : BufferOf(out),
                        .root = world.rank(),
                        .label = "label of rank " + std::to_string(world.rank())};
              SUMONCE_RETURN_IF_ERROR(world.Run(call));
              EXPECT_EQ(world.rank() % 2 == 0 ? in[0] : out[0], world.size());
              return world.Run({.kind = CallKind::kBarrier,
                                .op = world.rank() == 0 ? ReduceOp::kMax : ReduceOp::kSum,
                                .root = world.rank()});
            }),
            absl::OkStatus());
}

// Counts whose products with size or bytes leave 64 bits are refused, not wrapped around.
TEST_P(Mismatches, CountsBeyondMemoryAreRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Run([&](Communicator& world) -> absl::Status {
              double x = 0;
              const auto refused = [&](CallKind kind, int64_t in, int64_t out) {
                const absl::Status status =
                    world.Start({.kind = kind, .in = {&x, in}, .out = {&x, out}}).status();
                EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
                EXPECT_THAT(MessageOf(status), HasSubstr("more than memory can hold"));
              };
              refused(CallKind::kAllReduce, kMost / 4, kMost / 4);
              const int64_t per_rank = kMost / 8 / world.size() + 1;
              refused(CallKind::kAllReduce, per_rank, per_rank);
              refused(CallKind::kAllGather, kMost / 4, kMost);
              refused(CallKind::kReduceScatter, 0, int64_t{1} << 62);
              refused(CallKind::kSend, kMost, 0);
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

// Where a call may be when another rank aborts the world.
enum class CallState { kNotStarted, kStarted, kMatched, kWaiting, kDone };

// Rank 0's part: aborts when every peer has said that its call is in that state.
absl::Status AbortWhenAllAreThere(Communicator& world, CallState state,
                                  const absl::Status& reason) {
  std::vector<double> x(3, 1.0);
  std::unique_ptr<Work> mine;
  if (state == CallState::kMatched || state == CallState::kDone) {
    SUMONCE_ASSIGN_OR_RETURN(
        mine, world.Start({.kind = CallKind::kAllReduce, .in = BufferOf(x), .out = BufferOf(x)}));
  }
  for (int peer = 1; peer < world.size(); ++peer)
    SUMONCE_RETURN_IF_ERROR(world.Recv({}, peer, "there"));
  if (state == CallState::kDone) SUMONCE_RETURN_IF_ERROR(mine->Wait());
  world.Abort(reason);
  if (state == CallState::kMatched) EXPECT_EQ(mine->Wait(), reason);
  return world.Barrier("behind the abort");
}

absl::Status SayAndWaitForTheAbort(Communicator& world, const absl::Status& reason) {
  SUMONCE_RETURN_IF_ERROR(world.Send({}, 0, "there"));
  // Nobody sends: only the abort ends it.
  const absl::Status told = world.Recv({}, 0, "the abort");
  EXPECT_EQ(told, reason);
  return absl::OkStatus();
}

// A peer's part: what its AllReduce returns around the abort.
absl::Status MeetTheAbort(Communicator& world, CallState state, const absl::Status& reason) {
  std::vector<double> x(3, 1.0);
  const Call call{.kind = CallKind::kAllReduce, .in = BufferOf(x), .out = BufferOf(x)};
  if (state == CallState::kNotStarted) {
    SUMONCE_RETURN_IF_ERROR(SayAndWaitForTheAbort(world, reason));
    EXPECT_EQ(world.Start(call).status(), reason);
    return reason;
  }
  SUMONCE_ASSIGN_OR_RETURN(const std::unique_ptr<Work> work, world.Start(call));
  if (state == CallState::kWaiting) {
    SUMONCE_RETURN_IF_ERROR(world.Send({}, 0, "there"));
    EXPECT_EQ(work->Wait(), reason);
    EXPECT_EQ(x, std::vector<double>(3, 1.0)) << "nothing was reduced";
    return reason;
  }
  if (state == CallState::kDone) {
    SUMONCE_RETURN_IF_ERROR(work->Wait());
    SUMONCE_RETURN_IF_ERROR(SayAndWaitForTheAbort(world, reason));
    EXPECT_EQ(x, std::vector<double>(3, world.size())) << "what is done stays";
    return reason;
  }
  SUMONCE_RETURN_IF_ERROR(SayAndWaitForTheAbort(world, reason));
  EXPECT_EQ(work->Wait(), reason);
  return reason;
}

TEST_P(Mismatches, AbortInEveryStateOfACall) {
  const absl::Status reason = absl::ResourceExhaustedError("watchdog");
  for (CallState state : {CallState::kNotStarted, CallState::kStarted, CallState::kMatched,
                          CallState::kWaiting, CallState::kDone}) {
    SCOPED_TRACE(static_cast<int>(state));
    const absl::Status result = Run([&](Communicator& world) {
      return world.rank() == 0 ? AbortWhenAllAreThere(world, state, reason)
                               : MeetTheAbort(world, state, reason);
    });
    EXPECT_EQ(result, reason);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Mismatches,
                         testing::ValuesIn(ConformanceCases({2, 3, 8, 16}, {2, 5})), CaseName);

}  // namespace
}  // namespace sumonce

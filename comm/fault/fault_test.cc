// Each fault does to its call what it says, to no other call, and on copies; a fault that cannot
// act, or does not, is told.
#include "comm/fault.h"

#include <csignal>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/errors.h"
#include "comm/transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Runs the body on every rank, with these faults on the last one.
absl::Status RunFaulty(int size, const CallFault& fault, const RankBody& body,
                       ExecutorKind executor = ExecutorKind::kFibers) {
  return (*Transports().Find("in_process"))
      ->run({.world_size = size, .executor = {.kind = executor}},
            [&](Communicator& world) -> absl::Status {
              std::vector<CallFault> faults;
              if (world.rank() == size - 1) faults.push_back(fault);
              FaultInjector injector(faults, false);
              const auto faulty = injector.Wrap(world);
              SUMONCE_RETURN_IF_ERROR(body(*faulty));
              return injector.CheckAllActed();
            });
}

Buffer BufferIn(std::vector<double>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

// The sum over three ranks of (rank + 1) * {1, 2, 3, 4}, once as "other" and twice as "sum", each
// with its number added; returns what rank 0 got of the three.
std::vector<std::vector<double>> SumsUnder(const CallFault& fault,
                                           ExecutorKind executor = ExecutorKind::kFibers) {
  std::vector<std::vector<double>> got(3);
  const absl::Status status = RunFaulty(
      3, fault,
      [&](Communicator& world) -> absl::Status {
        const char* labels[] = {"other", "sum", "sum"};
        for (int call = 0; call < 3; ++call) {
          std::vector<double> in;
          for (int i = 1; i <= 4; ++i) in.push_back((world.rank() + 1) * i + call);
          const std::vector<double> before = in;
          std::vector<double> out(4);
          SUMONCE_RETURN_IF_ERROR(
              world.AllReduce(BufferIn(in), BufferIn(out), ReduceOp::kSum, labels[call]));
          EXPECT_EQ(in, before) << "the program's own buffer was changed";
          if (world.rank() == 0) got[call] = out;
        }
        return absl::OkStatus();
      },
      executor);
  EXPECT_EQ(status, absl::OkStatus());
  return got;
}

CallFault FaultAt(FaultKind kind, int64_t occurrence = 2) {
  return {.kind = kind, .operation = "s*", .occurrence = occurrence};
}

// Rank 2's terms are {3, 6, 9, 12}, plus the number of the call.
TEST(Fault, ChangesWhatOneCallSends) {
  const std::vector<double> other = {6, 12, 18, 24};
  const std::vector<double> first = {9, 15, 21, 27};
  for (ExecutorKind executor : {ExecutorKind::kFibers, ExecutorKind::kThreads}) {
    EXPECT_THAT(SumsUnder(FaultAt(FaultKind::kLate), executor),
                ElementsAre(other, first, ElementsAre(12, 18, 24, 30)));
    EXPECT_THAT(SumsUnder(FaultAt(FaultKind::kDroppedContribution), executor),
                ElementsAre(other, first, ElementsAre(7, 10, 13, 16)));
    EXPECT_THAT(SumsUnder(FaultAt(FaultKind::kDoubledContribution), executor),
                ElementsAre(other, first, ElementsAre(17, 26, 35, 44)));
    EXPECT_THAT(SumsUnder(FaultAt(FaultKind::kStaleBuffer), executor),
                ElementsAre(other, first, ElementsAre(11, 17, 23, 29)));
    CallFault flip = FaultAt(FaultKind::kFlippedBit);
    flip.element = 1;
    flip.bit = 63;  // the sign of 8
    EXPECT_THAT(SumsUnder(flip, executor), ElementsAre(other, first, ElementsAre(12, 2, 24, 30)));
    CallFault swap = FaultAt(FaultKind::kSwappedBuffer);
    swap.element = 2;
    swap.other = 0;
    swap.count = 2;
    EXPECT_THAT(SumsUnder(swap, executor), ElementsAre(other, first, ElementsAre(18, 24, 18, 24)));
  }
}

TEST(Fault, ActsOnItsOccurrenceOnly) {
  EXPECT_THAT(SumsUnder(FaultAt(FaultKind::kDroppedContribution, 1)),
              ElementsAre(ElementsAre(6, 12, 18, 24), ElementsAre(5, 8, 11, 14),
                          ElementsAre(12, 18, 24, 30)));
}

// Four ranks as a grid: rank 3's column sum is made on its row. Its row partner meets it there.
TEST(Fault, WrongGroupMeetsTheOthersThere) {
  const absl::Status status = RunFaulty(
      4, {.kind = FaultKind::kWrongGroup, .operation = "column"},
      [](Communicator& world) -> absl::Status {
        SUMONCE_ASSIGN_OR_RETURN(const auto row, world.Split(world.rank() / 2, 0, "row"));
        SUMONCE_ASSIGN_OR_RETURN(const auto column, world.Split(world.rank() % 2, 0, "column"));
        std::vector<double> x = {1.0 + world.rank()};
        if (world.rank() == 3)
          SUMONCE_RETURN_IF_ERROR(
              column->AllReduce(BufferIn(x), BufferIn(x), ReduceOp::kSum, "column"));
        if (world.rank() == 2)
          SUMONCE_RETURN_IF_ERROR(row->AllReduce(BufferIn(x), BufferIn(x), ReduceOp::kSum, "row"));
        EXPECT_EQ(x[0], world.rank() < 2 ? 1.0 + world.rank() : 7.0);
        return absl::OkStatus();
      });
  EXPECT_EQ(status, absl::OkStatus());
}

// A program that starts two calls and then waits has both results, whichever went first; its peers
// see the other order.
TEST(Fault, ReorderedCallsSwapOnTheWire) {
  const absl::Status status =
      RunFaulty(2, {.kind = FaultKind::kReordered, .operation = "a"},
                [](Communicator& world) -> absl::Status {
                  std::vector<double> a = {1.0};
                  std::vector<double> b = {10.0};
                  const bool swapped = world.rank() == 1;
                  const auto start = [&](std::vector<double>& x, const char* label) {
                    return world.Start({.kind = CallKind::kAllReduce,
                                        .in = BufferIn(x),
                                        .out = BufferIn(x),
                                        .label = label});
                  };
                  SUMONCE_ASSIGN_OR_RETURN(const auto first, start(a, "a"));
                  SUMONCE_ASSIGN_OR_RETURN(const auto second, start(b, "b"));
                  SUMONCE_RETURN_IF_ERROR(first->Wait());
                  SUMONCE_RETURN_IF_ERROR(second->Wait());
                  // Rank 0's first call meets rank 1's first on the wire, which is b.
                  EXPECT_EQ(a[0], 11.0) << swapped;
                  EXPECT_EQ(b[0], 11.0) << swapped;
                  return absl::OkStatus();
                });
  EXPECT_EQ(status, absl::OkStatus());
}

// A program that waits at once goes on without the result, its buffers untouched by the late call.
TEST(Fault, ReorderedBlockingCallGoesOnWithoutItsResult) {
  const absl::Status status = RunFaulty(
      2, {.kind = FaultKind::kReordered, .operation = "a"},
      [](Communicator& world) -> absl::Status {
        std::vector<double> b = {10.0};
        {
          std::vector<double> a = {1.0};
          SUMONCE_RETURN_IF_ERROR(world.AllReduce(BufferIn(a), BufferIn(a), ReduceOp::kSum, "a"));
          EXPECT_EQ(a[0], world.rank() == 1 ? 1.0 : 11.0);
        }
        SUMONCE_RETURN_IF_ERROR(world.AllReduce(BufferIn(b), BufferIn(b), ReduceOp::kSum, "b"));
        EXPECT_EQ(b[0], 11.0);
        return absl::OkStatus();
      });
  EXPECT_EQ(status, absl::OkStatus());
}

TEST(Fault, AKilledRankIsLostByName) {
  const absl::Status status =
      RunFaulty(3, {.kind = FaultKind::kKilled, .operation = "step", .occurrence = 2},
                [](Communicator& world) -> absl::Status {
                  SUMONCE_RETURN_IF_ERROR(world.Barrier("step"));
                  return world.Barrier("step");
                });
  EXPECT_EQ(KindOf(status), RunFailure::kRankLost) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("world rank 2 ended at Barrier (step)"),
                    HasSubstr("KILLED in call 2 of step")));
}

// A rank that is a process ends as processes do.
TEST(FaultDeathTest, AKilledProcessGetsSigkill) {
  EXPECT_EXIT((*Transports().Find("in_process"))
                  ->run({.world_size = 1},
                        [](Communicator& world) {
                          FaultInjector injector({{.kind = FaultKind::kKilled, .operation = "*"}},
                                                 true);
                          return injector.Wrap(world)->Barrier("last");
                        })
                  .IgnoreError(),
              testing::KilledBySignal(SIGKILL), "");
}

// In rank order the sum is 1, with the last term before the second 0: every rank has the same, and
// the schedule decides which. Without the fault, no schedule does.
TEST(Fault, UnorderedTermsAreAddedAsTheyCome) {
  const auto sums_under = [](bool unordered) {
    std::set<double> sums;
    for (uint64_t schedule = 0; schedule < 16; ++schedule) {
      std::vector<double> got(3);
      const absl::Status status =
          (*Transports().Find("in_process"))
              ->run({.world_size = 3, .executor = {.schedule = schedule}},
                    [&](Communicator& world) {
                      std::vector<CallFault> faults;
                      if (unordered)
                        faults.push_back({.kind = FaultKind::kUnordered, .operation = "sum"});
                      FaultInjector injector(faults, false);
                      const auto faulty = injector.Wrap(world);
                      const double terms[] = {1e17, -1e17, 1};
                      std::vector<double> in = {terms[world.rank()]}, out(1);
                      absl::Status sum =
                          faulty->AllReduce(BufferIn(in), BufferIn(out), ReduceOp::kSum, "sum");
                      got[world.rank()] = out[0];
                      return sum.ok() ? injector.CheckAllActed() : sum;
                    });
      EXPECT_EQ(status, absl::OkStatus());
      EXPECT_EQ(got[0], got[1]);
      EXPECT_EQ(got[0], got[2]);
      sums.insert(got[0]);
    }
    return sums;
  };
  EXPECT_THAT(sums_under(false), ElementsAre(1));
  EXPECT_THAT(sums_under(true), ElementsAre(0, 1));
}

TEST(Fault, OneThatNeverActsIsTold) {
  const absl::Status status =
      RunFaulty(2, {.kind = FaultKind::kLate, .operation = "step", .occurrence = 5},
                [](Communicator& world) { return world.Barrier("step"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("LATE in call 5 of step never acts: this rank makes 1 such calls"));
}

TEST(Fault, OneThatCannotActIsRefused) {
  const auto refusal = [](CallFault fault, const std::function<absl::Status(Communicator&)>& call) {
    fault.operation = "*";
    const absl::Status status = RunFaulty(1, fault, call);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const auto barrier = [](Communicator& world) { return world.Barrier("b"); };
  const auto sum = [](Communicator& world) {
    std::vector<double> x(4);
    return world.AllReduce(BufferIn(x), BufferIn(x), ReduceOp::kSum, "s");
  };
  const auto bytes = [](Communicator& world) {
    uint8_t x = 1;
    const Buffer one = {&x, 1, DType::kUint8};
    return world.Broadcast(one, one, 0, "bytes");
  };
  EXPECT_THAT(refusal({.kind = FaultKind::kDroppedContribution}, barrier),
              HasSubstr("cannot act on Barrier (b): it has no input on this rank"));
  EXPECT_THAT(refusal({.kind = FaultKind::kUnordered}, barrier),
              HasSubstr("cannot act on Barrier (b): expected a reduction"));
  EXPECT_THAT(refusal({.kind = FaultKind::kStaleBuffer}, sum),
              HasSubstr("expected a matching call of the same size before it"));
  EXPECT_THAT(refusal({.kind = FaultKind::kFlippedBit, .element = 4}, sum),
              HasSubstr("expected an element below 4"));
  EXPECT_THAT(refusal({.kind = FaultKind::kFlippedBit, .bit = 64}, sum),
              HasSubstr("expected a bit below 64"));
  EXPECT_THAT(refusal({.kind = FaultKind::kDoubledContribution}, bytes),
              HasSubstr("expected floating-point numbers"));
  EXPECT_THAT(refusal({.kind = FaultKind::kWrongGroup}, sum),
              HasSubstr("this rank has no other group of 1 ranks"));
  for (const auto& [element, other, count] :
       {std::tuple{0, 1, 2}, std::tuple{0, 3, 2}, std::tuple{-1, 2, 1}, std::tuple{0, 2, 0}}) {
    EXPECT_THAT(
        refusal(
            {.kind = FaultKind::kSwappedBuffer, .element = element, .other = other, .count = count},
            sum),
        HasSubstr("expected two ranges apart from each other, below 4 elements"));
  }
}

}  // namespace
}  // namespace sumonce

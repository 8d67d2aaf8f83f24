// What every transport must do: each call's result, to the bit, on every executor and at every
// size.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "base/status.h"
#include "comm/conformance/cases.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

constexpr int64_t kCounts[] = {0, 1, 7, 5000};  // 5000: several chunks, and no multiple of them

// What a world of this size does quickly: a call's work grows with its square.
bool Quick(const Communicator& comm, int64_t count) {
  return comm.size() <= 8 || count <= (comm.size() <= 64 ? 7 : 1);
}

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax};

class Collectives : public ConformanceTest {};

template <typename T>
std::vector<T> Reduced(ReduceOp op, int size, int64_t begin, int64_t count) {
  std::vector<T> expected(count);
  for (int64_t i = 0; i < count; ++i) expected[i] = ExpectedReduction<T>(op, size, begin + i);
  return expected;
}

// To the bit where sums are ordered, and where the order of the terms does not matter.
template <typename T>
testing::AssertionResult Reduces(const Communicator& comm, ReduceOp op, int64_t begin,
                                 const std::vector<T>& actual) {
  const bool exact =
      comm.properties().ordered_sums || op == ReduceOp::kMax || std::is_integral_v<T>;
  if (exact)
    return SameBits(actual,
                    Reduced<T>(op, comm.size(), begin, static_cast<int64_t>(actual.size())));
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto index = begin + static_cast<int64_t>(i);
    if (auto in_order = InSomeOrder(op, comm.size(), index, actual[i]); !in_order) return in_order;
  }
  return testing::AssertionSuccess();
}

template <typename T>
absl::Status CheckAllReduce(Communicator& comm, ReduceOp op, int64_t count) {
  std::vector<T> in = InputsOf<T>(comm.rank(), count);
  std::vector<T> out(count);
  SUMONCE_RETURN_IF_ERROR(comm.AllReduce(BufferOf(in), BufferOf(out), op, "out of place"));
  EXPECT_TRUE(Reduces(comm, op, 0, out)) << Name(op);
  EXPECT_TRUE(SameBits(in, InputsOf<T>(comm.rank(), count))) << "in was written";
  SUMONCE_RETURN_IF_ERROR(comm.AllReduce(BufferOf(in), BufferOf(in), op, "in place"));
  EXPECT_TRUE(Reduces(comm, op, 0, in)) << Name(op) << " in place";
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckReduceScatter(Communicator& comm, ReduceOp op, int64_t count) {
  std::vector<T> in = InputsOf<T>(comm.rank(), count * comm.size());
  std::vector<T> out(count);
  SUMONCE_RETURN_IF_ERROR(comm.ReduceScatter(BufferOf(in), BufferOf(out), op, "out of place"));
  EXPECT_TRUE(Reduces(comm, op, comm.rank() * count, out)) << Name(op);
  const Buffer slice = BufferOf(in, comm.rank() * count, count);
  SUMONCE_RETURN_IF_ERROR(comm.ReduceScatter(BufferOf(in), slice, op, "in place"));
  const std::vector<T> in_place(in.begin() + comm.rank() * count,
                                in.begin() + (comm.rank() + 1) * count);
  EXPECT_TRUE(Reduces(comm, op, comm.rank() * count, in_place)) << Name(op) << " in place";
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckReductions(Communicator& comm) {
  for (ReduceOp op : kOps) {
    if (op == ReduceOp::kAvg && std::is_integral_v<T>) continue;
    for (int64_t count : kCounts) {
      if (!Quick(comm, count)) continue;
      SUMONCE_RETURN_IF_ERROR(CheckAllReduce<T>(comm, op, count));
      SUMONCE_RETURN_IF_ERROR(CheckReduceScatter<T>(comm, op, count));
    }
  }
  return absl::OkStatus();
}

// SUM, AVG and MAX are bit-equal to the loop over ranks in ascending order, on inputs where another
// order differs.
TEST_P(Collectives, ReductionsRunInRankOrder) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              SUMONCE_RETURN_IF_ERROR(CheckReductions<double>(world));
              SUMONCE_RETURN_IF_ERROR(CheckReductions<float>(world));
              SUMONCE_RETURN_IF_ERROR(CheckReductions<BFloat16>(world));
              SUMONCE_RETURN_IF_ERROR(CheckReductions<int64_t>(world));
              SUMONCE_RETURN_IF_ERROR(CheckReductions<int32_t>(world));
              if (world.size() > 16) return absl::OkStatus();
              return CheckAllReduce<double>(world, ReduceOp::kSum, 5000);
            }),
            absl::OkStatus());
}

// A suite that runs over nothing would pass.
TEST(ConformanceInputs, TheNamedTransportIsThere) {
  EXPECT_FALSE(ConformanceCases({1}, {}).empty());
}

// The properties say what a run has.
TEST_P(Collectives, PropertiesTell) {
  EXPECT_EQ(Run([&](Communicator& world) {
              EXPECT_EQ(world.properties().transport, GetParam().transport);
              EXPECT_EQ(world.properties().ordered_sums, group() == nullptr || !native());
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

// Replicas stay equal: every rank gets the same bits, in whatever order they were summed.
TEST_P(Collectives, AllRanksGetTheSameBits) {
  EXPECT_EQ(
      Run([](Communicator& world) -> absl::Status {
        std::vector<float> sums = InputsOf<float>(world.rank(), 3001);
        SUMONCE_RETURN_IF_ERROR(
            world.AllReduce(BufferOf(sums), BufferOf(sums), ReduceOp::kSum, "sums"));
        std::vector<float> firsts = sums;
        SUMONCE_RETURN_IF_ERROR(world.Broadcast(BufferOf(firsts), BufferOf(firsts), 0, "rank 0's"));
        EXPECT_TRUE(SameBits(sums, firsts));
        return absl::OkStatus();
      }),
      absl::OkStatus());
}

// The inputs do what they are for: summed from the last rank down, some element has other bits.
TEST(ConformanceInputs, OrderShows) {
  for (int size : {3, 4, 8, 16, 64}) {
    int differing = 0;
    for (int64_t i = 0; i < 7; ++i) {
      double total = InputOf<double>(size - 1, i);
      for (int rank = size - 2; rank >= 0; --rank) total += InputOf<double>(rank, i);
      if (total != ExpectedReduction<double>(ReduceOp::kSum, size, i)) ++differing;
    }
    EXPECT_GT(differing, 0) << size;
  }
}

// What is not finite must not vanish in a maximum, wherever it comes from; integer sums wrap.
TEST_P(Collectives, MaxKeepsNanAndIntegersWrap) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              for (int bad_rank : {0, world.size() - 1}) {
                const bool bad = world.rank() == bad_rank;
                std::vector<double> value = {bad ? std::numeric_limits<double>::quiet_NaN() : 1.0};
                SUMONCE_RETURN_IF_ERROR(
                    world.AllReduce(BufferOf(value), BufferOf(value), ReduceOp::kMax, "nan"));
                EXPECT_TRUE(std::isnan(value[0]));
              }
              std::vector<int32_t> big = {std::numeric_limits<int32_t>::max()};
              SUMONCE_RETURN_IF_ERROR(
                  world.AllReduce(BufferOf(big), BufferOf(big), ReduceOp::kSum, "wrap"));
              EXPECT_EQ(static_cast<uint32_t>(big[0]),
                        0x7fffffffu * static_cast<uint32_t>(world.size()));
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

template <typename T>
absl::Status CheckAllGather(Communicator& comm, int64_t count) {
  std::vector<T> in = InputsOf<T>(comm.rank(), count);
  std::vector<T> out(count * comm.size());
  std::vector<T> expected;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::vector<T> part = InputsOf<T>(rank, count);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  SUMONCE_RETURN_IF_ERROR(comm.AllGather(BufferOf(in), BufferOf(out), "out of place"));
  EXPECT_TRUE(SameBits(out, expected));
  std::vector<T> both(count * comm.size());
  std::copy(in.begin(), in.end(), both.begin() + comm.rank() * count);
  const Buffer slice = BufferOf(both, comm.rank() * count, count);
  SUMONCE_RETURN_IF_ERROR(comm.AllGather(slice, BufferOf(both), "in place"));
  EXPECT_TRUE(SameBits(both, expected)) << "in place";
  return absl::OkStatus();
}

// In place on odd ranks, on even ones, on all and on none: a slice is read before it is
// overwritten.
template <typename T>
absl::Status CheckAllToAll(Communicator& comm, int64_t count) {
  std::vector<T> expected;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::vector<T> slice = InputsOf<T>(rank, comm.rank() * count, count);
    expected.insert(expected.end(), slice.begin(), slice.end());
  }
  for (int in_place = 0; in_place < 4; ++in_place) {
    std::vector<T> in = InputsOf<T>(comm.rank(), count * comm.size());
    std::vector<T> out(in.size());
    std::vector<T>& target = (in_place >> (comm.rank() % 2)) & 1 ? in : out;
    SUMONCE_RETURN_IF_ERROR(comm.AllToAll(BufferOf(in), BufferOf(target), "exchange"));
    EXPECT_TRUE(SameBits(target, expected)) << "in place: " << in_place;
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckBroadcast(Communicator& comm, int64_t count) {
  for (int root : {0, comm.size() / 2, comm.size() - 1}) {
    std::vector<T> in = InputsOf<T>(comm.rank(), count);
    std::vector<T> out(count);
    SUMONCE_RETURN_IF_ERROR(comm.Broadcast(BufferOf(in), BufferOf(out), root, "out of place"));
    EXPECT_TRUE(SameBits(out, InputsOf<T>(root, count)));
    SUMONCE_RETURN_IF_ERROR(comm.Broadcast(BufferOf(in), BufferOf(in), root, "in place"));
    EXPECT_TRUE(SameBits(in, out)) << "in place";
    SUMONCE_RETURN_IF_ERROR(comm.Broadcast(comm.rank() == root ? BufferOf(in) : Buffer{},
                                           BufferOf(out), root, "in of the root only"));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckMoves(Communicator& comm) {
  for (int64_t count : kCounts) {
    if (!Quick(comm, count)) continue;
    SUMONCE_RETURN_IF_ERROR(CheckAllGather<T>(comm, count));
    SUMONCE_RETURN_IF_ERROR(CheckAllToAll<T>(comm, count));
    SUMONCE_RETURN_IF_ERROR(CheckBroadcast<T>(comm, count));
  }
  return absl::OkStatus();
}

TEST_P(Collectives, GathersExchangesAndBroadcasts) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              SUMONCE_RETURN_IF_ERROR(CheckMoves<double>(world));
              if (world.size() > 64) return CheckMoves<uint8_t>(world);
              SUMONCE_RETURN_IF_ERROR(CheckMoves<float>(world));
              SUMONCE_RETURN_IF_ERROR(CheckMoves<BFloat16>(world));
              SUMONCE_RETURN_IF_ERROR(CheckMoves<Float16>(world));
              SUMONCE_RETURN_IF_ERROR(CheckMoves<int64_t>(world));
              SUMONCE_RETURN_IF_ERROR(CheckMoves<int32_t>(world));
              return CheckMoves<uint8_t>(world);
            }),
            absl::OkStatus());
}

// Each rank sends to the next and receives from the one before, twice: messages of one pair keep
// their order.
TEST_P(Collectives, SendAndRecvMatchByPeerAndOrder) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              const int next = (world.rank() + 1) % world.size();
              const int before = (world.rank() + world.size() - 1) % world.size();
              std::vector<double> first = InputsOf<double>(world.rank(), 7);
              std::vector<double> second = InputsOf<double>(world.rank() + 100, 3000);
              SUMONCE_ASSIGN_OR_RETURN(
                  const auto send_first,
                  world.Start({.kind = CallKind::kSend, .in = BufferOf(first), .root = next}));
              SUMONCE_ASSIGN_OR_RETURN(
                  const auto send_second,
                  world.Start({.kind = CallKind::kSend, .in = BufferOf(second), .root = next}));
              std::vector<double> got_first(7);
              std::vector<double> got_second(3000);
              SUMONCE_RETURN_IF_ERROR(world.Recv(BufferOf(got_first), before, "first"));
              SUMONCE_RETURN_IF_ERROR(world.Recv(BufferOf(got_second), before, "second"));
              EXPECT_TRUE(SameBits(got_first, InputsOf<double>(before, 7)));
              EXPECT_TRUE(SameBits(got_second, InputsOf<double>(before + 100, 3000)));
              SUMONCE_RETURN_IF_ERROR(send_second->Wait());
              return send_first->Wait();
            }),
            absl::OkStatus());
}

// Several calls in flight, waited for in another order than they were started, another one on odd
// ranks.
TEST_P(Collectives, SeveralWorksInFlight) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              constexpr int kWorks = 5;
              std::vector<std::vector<double>> values;
              std::vector<std::unique_ptr<Work>> works;
              for (int k = 0; k < kWorks; ++k)
                values.push_back(InputsOf<double>(world.rank(), 100 + k));
              for (auto& value : values) {
                SUMONCE_ASSIGN_OR_RETURN(works.emplace_back(),
                                         world.Start({.kind = CallKind::kAllReduce,
                                                      .in = BufferOf(value),
                                                      .out = BufferOf(value)}));
              }
              for (int k = 0; k < kWorks; ++k) {
                SUMONCE_RETURN_IF_ERROR(works[world.rank() % 2 == 0 ? kWorks - 1 - k : k]->Wait());
              }
              for (const auto& value : values) {
                EXPECT_TRUE(Reduces(world, ReduceOp::kSum, 0, value));
              }
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

// A call completes on one rank before its peers wait for it: nobody's progress depends on another's
// Wait.
TEST_P(Collectives, AWaitNeedsOnlyThePeersStart) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              std::vector<double> a(3000, 1.0);
              std::vector<double> b(3000, 2.0);
              const Call first{.kind = CallKind::kAllReduce, .in = BufferOf(a), .out = BufferOf(a)};
              const Call second{
                  .kind = CallKind::kAllReduce, .in = BufferOf(b), .out = BufferOf(b)};
              SUMONCE_ASSIGN_OR_RETURN(const auto work, world.Start(first));
              if (world.rank() == 0) {
                SUMONCE_RETURN_IF_ERROR(world.Run(second));
                return work->Wait();
              }
              SUMONCE_RETURN_IF_ERROR(work->Wait());
              return world.Run(second);
            }),
            absl::OkStatus());
}

TEST_P(Collectives, BarrierHoldsEveryRankBack) {
  SharedCounter arrived(group());
  EXPECT_EQ(RunSchedule(7,
                        [&](Communicator& world) -> absl::Status {
                          for (int round = 1; round <= 10; ++round) {
                            ++arrived;
                            SUMONCE_RETURN_IF_ERROR(world.Barrier("round"));
                            EXPECT_EQ(arrived.value(), round * world.size());
                            SUMONCE_RETURN_IF_ERROR(world.Barrier("round's end"));
                          }
                          return absl::OkStatus();
                        }),
            absl::OkStatus());
}

// Even and odd ranks reduce at the same time in their own groups, each in descending rank order as
// the key says; a negative color belongs to none.
TEST_P(Collectives, SplitGroupsWorkInParallel) {
  EXPECT_EQ(
      Run([](Communicator& world) -> absl::Status {
        const int color = world.rank() == 0 ? -1 : world.rank() % 2;
        SUMONCE_ASSIGN_OR_RETURN(const auto half, world.Split(color, -world.rank(), "half"));
        EXPECT_EQ(half == nullptr, color < 0);
        if (half == nullptr) return absl::OkStatus();
        std::vector<int64_t> members(half->size());
        std::vector<int64_t> mine = {world.rank()};
        for (int round = 0; round < 1 + world.rank() % 2 * 3;
             ++round) {  // the halves differ in number of calls
          SUMONCE_RETURN_IF_ERROR(half->AllGather(BufferOf(mine), BufferOf(members), "members"));
        }
        for (int k = 0; k < half->size(); ++k) {
          EXPECT_EQ(members[k], members[0] - 2 * k);
        }
        EXPECT_EQ(members[half->rank()], world.rank());
        return absl::OkStatus();
      }),
      absl::OkStatus());
}

// A group of a group, and two groups with the same members: calls on one never meet those on the
// other.
TEST_P(Collectives, NestedAndTwinGroups) {
  EXPECT_EQ(
      Run([](Communicator& world) -> absl::Status {
        SUMONCE_ASSIGN_OR_RETURN(const auto a, world.Split(0, world.rank(), "a"));
        SUMONCE_ASSIGN_OR_RETURN(const auto b, world.Split(0, world.rank(), "b"));
        SUMONCE_ASSIGN_OR_RETURN(const auto pair, a->Split(a->rank() / 2, a->rank(), "pair"));
        std::vector<double> x = {1.0};
        std::vector<double> y = {10.0};
        SUMONCE_ASSIGN_OR_RETURN(
            const auto on_a,
            a->Start({.kind = CallKind::kAllReduce, .in = BufferOf(x), .out = BufferOf(x)}));
        SUMONCE_RETURN_IF_ERROR(b->AllReduce(BufferOf(y), BufferOf(y), ReduceOp::kSum, "b"));
        SUMONCE_RETURN_IF_ERROR(on_a->Wait());
        EXPECT_EQ(x[0], world.size());
        EXPECT_EQ(y[0], 10 * world.size());
        std::vector<double> z = {1.0};
        SUMONCE_RETURN_IF_ERROR(pair->AllReduce(BufferOf(z), BufferOf(z), ReduceOp::kSum, "pair"));
        EXPECT_EQ(z[0], pair->size());
        return absl::OkStatus();
      }),
      absl::OkStatus());
}

// Counts that no single message or chunk holds, and that do not divide.
TEST_P(Collectives, LargeCounts) {
  if (size() > 3 || wrapped()) GTEST_SKIP() << "the same code, for many times the memory";
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              SUMONCE_RETURN_IF_ERROR(CheckAllReduce<double>(world, ReduceOp::kSum, 1'100'003));
              SUMONCE_RETURN_IF_ERROR(CheckReduceScatter<float>(world, ReduceOp::kAvg, 600'001));
              SUMONCE_RETURN_IF_ERROR(CheckAllGather<double>(world, 150'001));
              SUMONCE_RETURN_IF_ERROR(CheckAllToAll<double>(world, 150'001));
              return CheckBroadcast<uint8_t>(world, 1'500'001);
            }),
            absl::OkStatus());
}

// A short training-like exchange on split groups gives the same bits under every schedule and
// executor, and on every transport those of fibers in one process.
TEST_P(Collectives, SchedulesAndExecutorsGiveTheSameBits) {
  const auto step = [this](const Transport& transport, ExecutorKind kind, uint64_t schedule) {
    std::vector<std::vector<float>> results(size());
    const RankBody body = [&](Communicator& world) -> absl::Status {
      std::vector<float> value = InputsOf<float>(world.rank(), 70);
      SUMONCE_ASSIGN_OR_RETURN(const auto tp, world.Split(world.rank() / 2, world.rank(), "tp"));
      SUMONCE_ASSIGN_OR_RETURN(const auto dp, world.Split(world.rank() % 2, world.rank(), "dp"));
      for (int round = 0; round < 3; ++round) {
        SUMONCE_RETURN_IF_ERROR(
            tp->AllReduce(BufferOf(value), BufferOf(value), ReduceOp::kSum, "tp"));
        SUMONCE_RETURN_IF_ERROR(
            dp->AllReduce(BufferOf(value), BufferOf(value), ReduceOp::kAvg, "dp"));
      }
      results[world.rank()] = value;
      return absl::OkStatus();
    };
    EXPECT_EQ(RunOn(transport, kind, schedule, body), absl::OkStatus());
    return results;
  };
  if (native()) GTEST_SKIP() << "native sums promise no bits";
  const auto expected = step(**Transports().Find("in_process"), ExecutorKind::kFibers, 0);
  for (uint64_t schedule : {0, 7, 8}) {
    const auto actual = step(transport(), GetParam().executor, schedule);
    int compared = 0;
    for (int rank = 0; rank < size(); ++rank) {
      if (actual[rank].empty()) continue;  // lives in another process, which compares it
      ++compared;
      EXPECT_TRUE(SameBits(actual[rank], expected[rank]))
          << "rank " << rank << " schedule " << schedule;
    }
    EXPECT_EQ(compared, ranks_here());
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Collectives,
                         testing::ValuesIn(ConformanceCases({1, 2, 3, 4, 8, 16, 64, 256, 1024},
                                                            {1, 2, 5})),
                         CaseName);

}  // namespace
}  // namespace sumonce

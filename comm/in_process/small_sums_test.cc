#include "comm/in_process/small_sums.h"

#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "comm/conformance/cases.h"
#include "comm/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using PostState = SmallSums::State;

Call SumOf(std::vector<float>& x, ReduceOp op = ReduceOp::kSum) {
  return {.kind = CallKind::kAllReduce, .in = BufferOf(x), .out = BufferOf(x), .op = op};
}

TEST(SmallSums, TakesSmallAllReducesOfSmallGroups) {
  const SmallSums sums(2);
  std::vector<float> small(256), large(257);
  EXPECT_TRUE(sums.Takes(0, SumOf(small)));
  EXPECT_FALSE(sums.Takes(0, SumOf(large)));
  EXPECT_FALSE(sums.Takes(0, {.kind = CallKind::kBarrier}));
  Call as_they_come = SumOf(small);
  as_they_come.any_order = true;
  EXPECT_FALSE(sums.Takes(0, as_they_come));
  EXPECT_FALSE(SmallSums(SmallSums::kMaxMembers + 1).Takes(0, SumOf(small)));
}

// The first post of a call is not lost by all that its member does afterwards, up to the next that
// its peer has to take part in.
TEST(SmallSums, APostStaysUntilItsPeersHaveReadIt) {
  SmallSums sums(2);
  std::vector<float> x = {1, 2}, y = {10, 20}, later = {5};
  sums.Post(0, SumOf(x));
  EXPECT_EQ(sums.Look(0), PostState::kWaiting);
  EXPECT_THAT(sums.Missing(0), ElementsAre(1));
  sums.Post(1, SumOf(y));
  EXPECT_THAT(sums.Missing(0), IsEmpty());
  EXPECT_EQ(sums.Look(0), PostState::kPosted);
  sums.Sum(0, SumOf(x));
  EXPECT_THAT(x, ElementsAre(11, 22));
  sums.Post(0, SumOf(later));
  EXPECT_EQ(sums.Look(1), PostState::kPosted);
  sums.Sum(1, SumOf(y));
  EXPECT_THAT(y, ElementsAre(11, 22));
  EXPECT_TRUE(sums.AnyPosted(1, sums.BeginAtChannel(1))) << "member 0 may wait";
  EXPECT_EQ(sums.Look(0), PostState::kAtChannel);
}

// Member 0 has a call under way: its calls meet at the channel, also those that a peer has posted.
TEST(SmallSums, AMarkSendsThosePostedToTheChannel) {
  SmallSums sums(3);
  std::vector<float> x = {1}, y = {2}, z = {3};
  sums.Post(0, SumOf(x));
  sums.Post(1, SumOf(y));
  sums.Post(2, SumOf(z));
  EXPECT_EQ(sums.Look(0), PostState::kPosted);
  EXPECT_FALSE(sums.AnyPosted(0, sums.BeginAtChannel(0)));
  EXPECT_FALSE(sums.Takes(0, SumOf(x)));
  EXPECT_FALSE(sums.AnyPosted(0, sums.BeginAtChannel(0)));
  EXPECT_EQ(sums.Look(1), PostState::kPosted) << "its first call, which all have posted";
  sums.Post(1, SumOf(y));
  EXPECT_EQ(sums.Look(1), PostState::kAtChannel) << "though member 2 is missing";
  sums.EndAtChannel(0, true);
  EXPECT_FALSE(sums.Takes(0, SumOf(x)));
  sums.EndAtChannel(0, true);
  EXPECT_TRUE(sums.Takes(0, SumOf(x)));
}

TEST(SmallSums, ACallThatNobodyWaitedForEndsItsMembersPosts) {
  SmallSums sums(2);
  std::vector<float> x = {1};
  sums.BeginAtChannel(0);
  sums.EndAtChannel(0, false);
  EXPECT_FALSE(sums.Takes(0, SumOf(x)));
  EXPECT_TRUE(sums.Takes(1, SumOf(x)));
}

// Of each: that all see it, and so all meet where the difference is said.
TEST(SmallSums, CallsThatDifferMeetAtTheChannel) {
  std::vector<float> x = {1, 2}, one = {1};
  std::vector<double> wide = {1, 2};
  const Call others[] = {
      SumOf(x, ReduceOp::kMax),
      SumOf(one),
      SumOf(one, ReduceOp::kAvg),
      {.kind = CallKind::kAllReduce, .in = BufferOf(wide), .out = BufferOf(wide)}};
  for (const Call& other : others) {
    SmallSums sums(2);
    sums.Post(0, SumOf(x));
    sums.Post(1, other);
    EXPECT_EQ(sums.Look(0), PostState::kAtChannel) << Describe(other);
    EXPECT_EQ(sums.Look(1), PostState::kAtChannel) << Describe(other);
  }
}

absl::Status RunRanks(int ranks, const ExecutorOptions& executor, const RankBody& body) {
  return (*Transports().Find("in_process"))->run({.world_size = ranks, .executor = executor}, body);
}

// What a rank has in flight, and how it makes its next call: at once or for later, as it likes.
class RandomCaller {
 public:
  explicit RandomCaller(Communicator& world)
      : world_(world), mine_(static_cast<uint64_t>(world.rank()), "ways") {}

  absl::Status Make(int number, int64_t count) {
    auto values = std::make_unique<std::vector<int64_t>>(count, number + world_.rank());
    const Call call{
        .kind = CallKind::kAllReduce, .in = BufferOf(*values), .out = BufferOf(*values)};
    const double way = mine_.Uniform(number);
    if (way < 0.3) {
      SUMONCE_ASSIGN_OR_RETURN(auto work, world_.Start(call));
      flights_.push_back({number, std::move(values), std::move(work)});
      return absl::OkStatus();
    }
    if (way > 0.5) SUMONCE_RETURN_IF_ERROR(Land());
    SUMONCE_RETURN_IF_ERROR(world_.Run(call));
    return Check(number, *values);
  }

  absl::Status Land() {
    for (; !flights_.empty(); flights_.pop_back()) {
      SUMONCE_RETURN_IF_ERROR(flights_.back().work->Wait());
      SUMONCE_RETURN_IF_ERROR(Check(flights_.back().number, *flights_.back().values));
    }
    return absl::OkStatus();
  }

 private:
  struct Flight {
    int number;
    std::unique_ptr<std::vector<int64_t>> values;
    std::unique_ptr<Work> work;
  };

  absl::Status Check(int number, const std::vector<int64_t>& values) const {
    const int64_t ranks = world_.size();
    for (const int64_t value : values) {
      if (value != ranks * number + ranks * (ranks - 1) / 2)
        return absl::DataLossError("a wrong sum");
    }
    return absl::OkStatus();
  }

  Communicator& world_;
  const RandomStream mine_;
  std::vector<Flight> flights_;
};

// Every rank makes the same calls, each in ways of its own: summed here or at the channel, every
// sum is right, under every interleaving that was tried.
TEST(SmallSums, RanksMayMakeACallInDifferentWays) {
  std::vector<ExecutorOptions> executors = {{.kind = ExecutorKind::kThreads},
                                            {.kind = ExecutorKind::kThreads, .pin_threads = false}};
  for (uint64_t schedule = 0; schedule < 20; ++schedule)
    executors.push_back({.kind = ExecutorKind::kFibers, .schedule = schedule});
  for (const int ranks : {2, 3, 8, 9}) {
    for (const ExecutorOptions& executor : executors) {
      EXPECT_EQ(RunRanks(ranks, executor,
                         [&](Communicator& world) -> absl::Status {
                           const RandomStream program(11, "program");
                           RandomCaller caller(world);
                           for (int number = 0; number < 300; ++number) {
                             const auto count = static_cast<int64_t>(8 * program.Uniform(number));
                             SUMONCE_RETURN_IF_ERROR(caller.Make(number, count));
                           }
                           return caller.Land();
                         }),
                absl::OkStatus())
          << ranks << " ranks, " << Name(executor.kind) << ", schedule " << executor.schedule;
    }
  }
}

// Member 1 makes its next call at the channel while member 0 still looks for its post of this one.
TEST(SmallSums, AMarkOfALaterCallHidesNoPost) {
  constexpr int kRounds = 20000;
  SmallSums sums(2);
  std::barrier channel(2);
  std::atomic<int> at_channel = 0;
  const auto member = [&](int slot) {
    std::vector<float> x = {1};
    for (int round = 0; round < kRounds; ++round) {
      sums.Post(slot, SumOf(x));
      while (sums.Look(slot) == PostState::kWaiting) {
      }
      if (sums.Look(slot) == PostState::kAtChannel) ++at_channel;
      sums.BeginAtChannel(slot);
      channel.arrive_and_wait();
      sums.EndAtChannel(slot, true);
    }
  };
  std::thread peer(member, 1);
  member(0);
  peer.join();
  EXPECT_EQ(at_channel, 0);
}

// A rank that sleeps on its post is woken by a peer that begins the call at the channel and then
// asks the executor for nothing.
TEST(SmallSums, ASleepingRankIsWokenByAMark) {
  std::atomic<bool> passed = false;
  const auto body = [&](Communicator& world) -> absl::Status {
    std::vector<float> x = {1};
    if (world.rank() == 0) {
      SUMONCE_RETURN_IF_ERROR(world.Run(SumOf(x)));
      passed = true;
      return absl::OkStatus();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    SUMONCE_ASSIGN_OR_RETURN(const auto work, world.Start(SumOf(x)));
    for (int k = 0; !passed; ++k) {
      if (k > 10000) return absl::DeadlineExceededError("nobody woke it");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return work->Wait();
  };
  EXPECT_EQ(RunRanks(2, {.kind = ExecutorKind::kThreads}, body), absl::OkStatus());
}

// A peer that drops its Work after this rank has posted sees the call through, or learns that the
// calls differ, as if this rank had come to the channel.
TEST(SmallSums, ADroppedCallThatAllCameForIsSeenThrough) {
  std::vector<float> other(300, 1.0f);
  std::vector<float> same(1, 1.0f);
  for (const ExecutorKind kind : {ExecutorKind::kFibers, ExecutorKind::kThreads}) {
    for (const Call& dropped : {SumOf(same), SumOf(other), Call{.kind = CallKind::kBarrier}}) {
      const absl::Status result = RunRanks(2, {.kind = kind}, [&](Communicator& world) {
        std::vector<float> x = {1};
        if (world.rank() == 0) return world.Run(SumOf(x));
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        return world.Start(dropped).status();
      });
      const bool fits = dropped.in.count == 1;
      EXPECT_EQ(KindOf(result), fits ? RunFailure::kNone : RunFailure::kCollectiveMismatch)
          << Describe(dropped) << ": " << result;
    }
  }
}

// A post meets a call of another kind, however that is made.
TEST(SmallSums, MismatchesAreNamedAsElsewhere) {
  for (const ExecutorKind kind : {ExecutorKind::kFibers, ExecutorKind::kThreads}) {
    for (const int other : {0, 1, 2, 3}) {
      const absl::Status result =
          RunRanks(2, {.kind = kind}, [&](Communicator& world) -> absl::Status {
            std::vector<float> x(2, 1.0f), large(100, 1.0f);
            if (world.rank() == 0) return world.Run(SumOf(x));
            if (other == 0) return world.Run(SumOf(x, ReduceOp::kMax));
            if (other == 1) return world.Run(SumOf(large));
            if (other == 2) return world.Barrier("bell");
            SUMONCE_ASSIGN_OR_RETURN(const auto work, world.Start(SumOf(x, ReduceOp::kAvg)));
            return work->Wait();
          });
      EXPECT_EQ(KindOf(result), RunFailure::kCollectiveMismatch) << result;
      EXPECT_THAT(std::string(result.message()),
                  HasSubstr("rank 0 calls AllReduce SUM of 2 float32 while rank 1 calls "));
    }
  }
}

// In rank order the sum is 1, with the last term before the second 0.
TEST(SmallSums, NativeSumsAreAddedAsTheRanksCome) {
  for (const bool native : {false, true}) {
    std::set<double> sums;
    for (uint64_t schedule = 0; schedule < 16; ++schedule) {
      const RunOptions options{
          .world_size = 3, .executor = {.schedule = schedule}, .native_sums = native};
      double got = 0;
      const absl::Status status =
          (*Transports().Find("in_process"))->run(options, [&](Communicator& world) {
            const double terms[] = {1e17, -1e17, 1};
            std::vector<double> x = {terms[world.rank()]};
            const absl::Status sum = world.AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kSum, "");
            if (world.rank() == 0) got = x[0];
            return sum;
          });
      EXPECT_EQ(status, absl::OkStatus());
      sums.insert(got);
    }
    EXPECT_EQ(sums, native ? std::set<double>({0, 1}) : std::set<double>({1}));
  }
}

TEST(SmallSums, AMissingRankIsNamed) {
  for (const ExecutorKind kind : {ExecutorKind::kFibers, ExecutorKind::kThreads}) {
    const absl::Status result =
        RunRanks(3, {.kind = kind}, [](Communicator& world) -> absl::Status {
          std::vector<float> x(2, 1.0f);
          return world.rank() == 1 ? absl::OkStatus() : world.Run(SumOf(x));
        });
    EXPECT_EQ(KindOf(result), RunFailure::kDeadlock) << result;
    EXPECT_THAT(std::string(result.message()),
                HasSubstr("rank 0 waits for AllReduce SUM of 2 float32 on world [0 1 2]: rank 1 "
                          "missing"));
  }
}

}  // namespace
}  // namespace sumonce

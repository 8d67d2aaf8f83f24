// What a recording holds of the calls that ranks made.
#include "comm/recording.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "comm/transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;

struct Recorded {
  absl::Status status;
  std::vector<RankCalls> ranks;
};

// A clock that counts its readings: every time differs, and a run on fibers repeats.
Recorded RecordRun(int size, const RankBody& body, int64_t max_calls = 1 << 20,
                   ExecutorOptions executor = {}) {
  std::atomic<int64_t> ticks = 0;
  CallRecorder recorder(
      size, {.now_us = [&ticks] { return static_cast<double>(ticks++); }, .max_calls = max_calls});
  Recorded recorded;
  recorded.status = (*Transports().Find("in_process"))
                        ->run({.world_size = size, .executor = executor}, [&](Communicator& world) {
                          const auto recording = recorder.Wrap(world);
                          return body(*recording);
                        });
  recorded.ranks = recorder.Take();
  return recorded;
}

Buffer Doubles(std::vector<double>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

// Two groups, a broadcast and a pair of messages, on four ranks.
absl::Status VariedCalls(Communicator& world) {
  std::vector<double> x(6, 1.0);
  SUMONCE_ASSIGN_OR_RETURN(const auto pair, world.Split(world.rank() / 2, world.rank(), "pair"));
  SUMONCE_RETURN_IF_ERROR(pair->AllReduce(Doubles(x), Doubles(x), ReduceOp::kAvg, "mean"));
  SUMONCE_RETURN_IF_ERROR(world.Broadcast(Doubles(x), Doubles(x), 3, "from the last"));
  if (world.rank() == 0) SUMONCE_RETURN_IF_ERROR(world.Send(Doubles(x), 2, "message"));
  if (world.rank() == 2) SUMONCE_RETURN_IF_ERROR(world.Recv(Doubles(x), 0, "message"));
  return pair->Barrier("end");
}

TEST(Recording, HoldsEveryCallWithItsArguments) {
  const Recorded recorded = RecordRun(4, VariedCalls);
  ASSERT_EQ(recorded.status, absl::OkStatus());
  const RankCalls& two = recorded.ranks[2];
  ASSERT_EQ(two.groups.size(), 2u);
  EXPECT_EQ(two.groups[0].id, "world");
  EXPECT_EQ(two.groups[1].id, "world/0.2");
  EXPECT_EQ(two.groups[1].name, "pair");
  EXPECT_THAT(two.groups[1].world_ranks, ElementsAre(2, 3));
  std::vector<std::string> labels;
  for (const RecordedCall& call : two.calls) labels.push_back(call.label);
  EXPECT_THAT(labels, ElementsAre("pair", "mean", "from the last", "message", "end"));
  EXPECT_EQ(two.calls[0].kind, CallKind::kSplit);
  const RecordedCall& mean = two.calls[1];
  EXPECT_EQ(std::tuple(mean.kind, mean.group, mean.count, mean.bytes, mean.op, mean.ordinal),
            std::tuple(CallKind::kAllReduce, 1, 6, 48, ReduceOp::kAvg, 0));
  EXPECT_EQ(two.calls[2].root, 3);
  EXPECT_EQ(two.calls[3].root, 0);
  EXPECT_EQ(two.calls[4].ordinal, 1) << "the pair's second collective";
  for (const RecordedCall& call : two.calls) {
    EXPECT_EQ(call.status, absl::OkStatus());
    EXPECT_LT(call.start_us, call.end_us);
    EXPECT_LT(call.started, call.ended);
  }
}

// (group, ordinal) of collectives names the same call on all members, and only there.
TEST(Recording, MembersAgreeOnWhichCallIsWhich) {
  const Recorded recorded = RecordRun(4, VariedCalls);
  std::map<std::pair<std::string, int64_t>, std::set<std::string>> labels;
  std::map<std::pair<std::string, int64_t>, int> parts;
  for (const RankCalls& rank : recorded.ranks) {
    for (const RecordedCall& call : rank.calls) {
      if (call.kind == CallKind::kSend || call.kind == CallKind::kRecv) continue;
      const std::pair key(rank.groups[call.group].id, call.ordinal);
      labels[key].insert(call.label);
      parts[key]++;
    }
  }
  EXPECT_EQ(labels.size(), 2u + 2u * 2u);
  for (const auto& [key, names] : labels) EXPECT_EQ(names.size(), 1u) << key.first;
  for (const auto& [key, count] : parts) EXPECT_EQ(count, key.first == "world" ? 4 : 2);
}

// Positions are the fibers' schedule: the same one again, another with another schedule.
TEST(Recording, PositionsAreTheSchedule) {
  const auto positions = [](uint64_t schedule) {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (const RankCalls& rank : RecordRun(4, VariedCalls, 1 << 20, {.schedule = schedule}).ranks) {
      for (const RecordedCall& call : rank.calls) all.push_back({call.started, call.ended});
    }
    return all;
  };
  EXPECT_EQ(positions(0), positions(0));
  EXPECT_EQ(positions(7), positions(7));
  EXPECT_NE(positions(0), positions(7));
}

TEST(Recording, BeyondTheLimitCallsAreCountedNotKept) {
  const Recorded recorded = RecordRun(
      2,
      [](Communicator& world) {
        for (int i = 0; i < 10; ++i) SUMONCE_RETURN_IF_ERROR(world.Barrier("again"));
        return absl::OkStatus();
      },
      8);
  EXPECT_EQ(recorded.status, absl::OkStatus());
  for (const RankCalls& rank : recorded.ranks) {
    EXPECT_EQ(rank.calls.size(), 4u);
    EXPECT_EQ(rank.dropped, 6);
    EXPECT_EQ(rank.calls.back().ordinal, 3);
  }
}

// A refused call met nobody and takes no number; one that fails is there with its failure; one
// given up has ended.
TEST(Recording, FailuresAreRecorded) {
  const Recorded recorded = RecordRun(2, [](Communicator& world) {
    std::vector<double> x(4);
    const Buffer half = {x.data(), 2};
    EXPECT_FALSE(world.AllReduce(Doubles(x), half, ReduceOp::kSum, "refused").ok());
    SUMONCE_RETURN_IF_ERROR(world.Barrier("first"));
    {
      const auto dropped = world.Start({.kind = CallKind::kSend, .in = half, .root = world.rank()});
      EXPECT_TRUE(dropped.ok());
    }
    return world.rank() == 0 ? world.Barrier("usual")
                             : world.AllReduce(Doubles(x), Doubles(x), ReduceOp::kSum, "odd");
  });
  EXPECT_FALSE(recorded.status.ok());
  for (const RankCalls& rank : recorded.ranks) {
    ASSERT_EQ(rank.calls.size(), 4u);
    EXPECT_EQ(rank.calls[0].status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rank.calls[0].ordinal, -1);
    EXPECT_EQ(rank.calls[1].ordinal, 0);
    EXPECT_EQ(rank.calls[2].status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(rank.calls[3].status, recorded.status);
    EXPECT_EQ(rank.calls[3].ordinal, 1);
  }
}

}  // namespace
}  // namespace sumonce

#include "comm/in_process/channel.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "comm/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::HasSubstr;

Call Bell(const std::string& label) { return {.kind = CallKind::kBarrier, .label = label}; }

// One member makes all its calls before the other makes any: each meets its own counterpart.
TEST(Channel, AMemberMayBeAnyNumberOfCallsAhead) {
  Channel channel({{0, 1}, "pair [0 1]"});
  std::vector<Rendezvous*> points;
  for (int k = 0; k < 1000; ++k) {
    points.push_back(&channel.Next(0));
    EXPECT_TRUE(points.back()->Enter(0, Bell("early"), {}).ok());
    EXPECT_FALSE(points.back()->matched());
  }
  EXPECT_EQ(std::set<Rendezvous*>(points.begin(), points.end()).size(), points.size());
  for (Rendezvous* point : points) {
    EXPECT_EQ(&channel.Next(1), point);
    EXPECT_TRUE(point->Enter(1, Bell("late"), {}).ok());
    EXPECT_TRUE(point->complete());
  }
}

// Calls in step use a handful of meetings over and over: a long run needs no more memory than a
// short one.
TEST(Channel, MeetingsAreUsedAgain) {
  Channel channel({{0, 1, 2}, "group"});
  const auto member = [&](int slot) {
    std::set<Rendezvous*> seen;
    for (int k = 0; k < 3000; ++k) {
      Rendezvous& point = channel.Next(slot);
      seen.insert(&point);
      EXPECT_TRUE(point.Enter(slot, Bell("bell"), {}).ok());
      while (!point.complete()) std::this_thread::yield();
      channel.Leave(slot, point);
    }
    EXPECT_LE(seen.size(), 8u);
  };
  std::vector<std::jthread> threads;
  for (int slot = 0; slot < 3; ++slot) threads.emplace_back(member, slot);
}

// The one that comes last is told of the mismatch; nobody is matched.
TEST(Rendezvous, AMismatchMatchesNobody) {
  const Members members{{4, 7}, "tp [4 7]"};
  Rendezvous point(members);
  std::vector<double> x(2);
  const Call call{
      .kind = CallKind::kAllReduce, .in = {x.data(), 2}, .out = {x.data(), 2}, .label = "grads"};
  EXPECT_TRUE(point.Enter(1, Call(call), {}).ok());
  EXPECT_THAT(point.WaitingFor(1),
              HasSubstr("AllReduce SUM of 2 float64 (grads) on tp [4 7]: rank 4 missing"));
  const absl::Status status = point.Enter(0, Bell("bell"), {});
  EXPECT_EQ(KindOf(status), RunFailure::kCollectiveMismatch);
  EXPECT_FALSE(point.matched());
  point.Abandon(0);
  point.Abandon(1);
}

// A call taken back is not matched by whoever comes later, and named as given up.
TEST(Rendezvous, ACallTakenBackMeetsNobody) {
  const Members members{{0, 1}, "world [0 1]"};
  Rendezvous point(members);
  EXPECT_TRUE(point.Enter(0, Bell("bell"), {}).ok());
  EXPECT_FALSE(point.SeeThrough(0));
  EXPECT_TRUE(point.Enter(1, Bell("bell"), {}).ok());
  EXPECT_FALSE(point.matched());
  EXPECT_THAT(point.WaitingFor(1), HasSubstr("rank 0 gave it up without waiting"));
}

// Two members see one large call through at the same time: every chunk is moved once, and one of
// them completes it.
TEST(Rendezvous, HelpersShareTheChunks) {
  const Members members{{0, 1}, "world [0 1]"};
  constexpr int64_t kCount = 1 << 17;
  for (int round = 0; round < 20; ++round) {
    Rendezvous point(members);
    std::vector<int64_t> values[2] = {std::vector<int64_t>(kCount, 1),
                                      std::vector<int64_t>(kCount, 2)};
    bool completed[2] = {};
    for (int slot : {0, 1}) {
      const Buffer buffer{values[slot].data(), kCount, DType::kInt64};
      EXPECT_TRUE(
          point.Enter(slot, {.kind = CallKind::kAllReduce, .in = buffer, .out = buffer}, {}).ok());
    }
    EXPECT_TRUE(point.matched());
    EXPECT_FALSE(point.complete());
    {
      std::jthread other([&] { completed[1] = point.SeeThrough(1); });
      completed[0] = point.SeeThrough(0);
    }
    EXPECT_NE(completed[0], completed[1]);
    EXPECT_TRUE(point.complete());
    for (const std::vector<int64_t>& result : values) {
      EXPECT_EQ(result, std::vector<int64_t>(kCount, 3));
    }
  }
}

// A member that fails leaves a large call between two chunks; what it leaves undone nobody takes
// up.
TEST(Rendezvous, AbandonEndsTheTransfer) {
  const Members members{{0, 1}, "world [0 1]"};
  Rendezvous point(members);
  std::vector<int64_t> x(1 << 17, 1);
  std::vector<int64_t> y(1 << 17, 1);
  for (int slot : {0, 1}) {
    std::vector<int64_t>& values = slot == 0 ? x : y;
    const Buffer buffer{values.data(), 1 << 17, DType::kInt64};
    EXPECT_TRUE(
        point.Enter(slot, {.kind = CallKind::kAllReduce, .in = buffer, .out = buffer}, {}).ok());
  }
  point.Abandon(0);
  EXPECT_FALSE(point.Help(1));
  EXPECT_FALSE(point.complete());
  EXPECT_EQ(x, std::vector<int64_t>(1 << 17, 1)) << "moved after the end";
}

// When SeeThrough or Abandon has returned, the member's buffer is its own again, whatever its peers
// are doing: the last one to come may be moving a small call, helpers a large one.
TEST(Rendezvous, NobodyTouchesTheBufferOfAMemberThatLeft) {
  constexpr int kMembers = 16;
  Members members{{}, "world"};
  for (int rank = 0; rank < kMembers; ++rank) members.world_ranks.push_back(rank);
  for (int64_t count : {2048, 100000}) {  // one chunk; many
    for (int round = 0; round < 300; ++round) {
      Rendezvous point(members);
      std::vector<std::vector<int64_t>> values(kMembers, std::vector<int64_t>(count, 1));
      const auto enter = [&](int slot) {
        const Buffer buffer{values[slot].data(), count, DType::kInt64};
        EXPECT_TRUE(
            point.Enter(slot, {.kind = CallKind::kAllReduce, .in = buffer, .out = buffer}, {})
                .ok());
      };
      for (int slot = 0; slot + 1 < kMembers; ++slot) enter(slot);
      std::atomic<bool> about_to_enter = false;
      std::jthread last([&] {
        about_to_enter = true;
        enter(kMembers - 1);
        if (point.matched()) point.Help(kMembers - 1);
      });
      while (!about_to_enter) std::this_thread::yield();
      std::atomic<int> delay = 0;
      while (delay < round * 10) ++delay;
      if (round % 2 == 0) {
        point.SeeThrough(0);
      } else {
        point.Abandon(0);
      }
      const std::vector<int64_t> left = values[0];
      last.join();
      ASSERT_EQ(values[0], left) << "round " << round << " of " << count << " elements";
    }
  }
}

}  // namespace
}  // namespace sumonce

// Groups of every shape, several at work at once, and buffers wherever they may lie.
#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/conformance/cases.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

class Groups : public ConformanceTest {};

// How a world is cut: each rank's color and key.
struct Shape {
  const char* name;
  std::function<std::pair<int, int>(int rank, int size)> of;
};

std::vector<Shape> Shapes() {
  return {
      {"everyone", [](int rank, int) { return std::pair(0, rank); }},
      {"reversed", [](int rank, int) { return std::pair(3, -rank); }},
      {"alone", [](int rank, int) { return std::pair(rank, 0); }},
      {"neighbours", [](int rank, int) { return std::pair(rank / 2, rank); }},
      {"strides", [](int rank, int) { return std::pair(rank % 2, rank); }},
      {"one against the rest", [](int rank, int) { return std::pair(rank == 0 ? 7 : 1, 0); }},
      {"halves, one of them absent",
       [](int rank, int size) { return std::pair(2 * rank < size ? 0 : -1, rank); }},
      {"thirds, shuffled", [](int rank, int) { return std::pair(rank % 3, rank * 5 % 7); }},
  };
}

// World ranks of the group of `rank`, in group order: by key, then by world rank.
std::vector<int64_t> MembersOf(const Shape& shape, int rank, int size) {
  const int color = shape.of(rank, size).first;
  std::vector<std::pair<int, int64_t>> order;
  for (int other = 0; other < size; ++other) {
    const auto [other_color, key] = shape.of(other, size);
    if (other_color == color) order.push_back({key, other});
  }
  std::sort(order.begin(), order.end());
  std::vector<int64_t> members;
  for (const auto& [key, member] : order) members.push_back(member);
  return members;
}

// Each member's data name its world rank, so that a neighbouring group's would show.
absl::Status CheckSums(Communicator& group, int64_t me, const std::vector<int64_t>& members) {
  const int64_t total = std::accumulate(members.begin(), members.end(), int64_t{0});
  std::vector<int64_t> value = {me, 10 * me};
  SUMONCE_RETURN_IF_ERROR(group.AllReduce(BufferOf(value), BufferOf(value), ReduceOp::kSum, "sum"));
  EXPECT_EQ(value, (std::vector<int64_t>{total, 10 * total}));
  std::vector<int64_t> greatest = {me};
  SUMONCE_RETURN_IF_ERROR(
      group.AllReduce(BufferOf(greatest), BufferOf(greatest), ReduceOp::kMax, "max"));
  EXPECT_EQ(greatest[0], *std::max_element(members.begin(), members.end()));
  std::vector<int64_t> in(members.size());
  for (size_t k = 0; k < in.size(); ++k) in[k] = 1000 * static_cast<int64_t>(k) + me;
  std::vector<int64_t> slice(1);
  SUMONCE_RETURN_IF_ERROR(
      group.ReduceScatter(BufferOf(in), BufferOf(slice), ReduceOp::kSum, "scatter"));
  EXPECT_EQ(slice[0], 1000 * group.rank() * group.size() + total);
  return absl::OkStatus();
}

absl::Status CheckMovesIn(Communicator& group, int64_t me, const std::vector<int64_t>& members) {
  std::vector<int64_t> mine = {me};
  std::vector<int64_t> gathered(members.size());
  SUMONCE_RETURN_IF_ERROR(group.AllGather(BufferOf(mine), BufferOf(gathered), "gather"));
  EXPECT_EQ(gathered, members);
  std::vector<int64_t> in(members.size());
  for (size_t k = 0; k < in.size(); ++k) in[k] = 1000 * me + static_cast<int64_t>(k);
  std::vector<int64_t> exchanged(members.size());
  SUMONCE_RETURN_IF_ERROR(group.AllToAll(BufferOf(in), BufferOf(exchanged), "exchange"));
  for (size_t k = 0; k < members.size(); ++k)
    EXPECT_EQ(exchanged[k], 1000 * members[k] + group.rank());
  const int root = group.size() - 1;
  SUMONCE_RETURN_IF_ERROR(group.Broadcast(BufferOf(mine), BufferOf(mine), root, "root's"));
  EXPECT_EQ(mine[0], members[root]);
  mine[0] = me;
  SUMONCE_ASSIGN_OR_RETURN(const auto send,
                           group.Start({.kind = CallKind::kSend,
                                        .in = BufferOf(mine),
                                        .root = (group.rank() + 1) % group.size()}));
  std::vector<int64_t> received(1);
  const int before = (group.rank() + group.size() - 1) % group.size();
  SUMONCE_RETURN_IF_ERROR(group.Recv(BufferOf(received), before, "from the one before"));
  EXPECT_EQ(received[0], members[before]);
  SUMONCE_RETURN_IF_ERROR(send->Wait());
  return group.Barrier("together");
}

// All groups of a shape work at the same time, and all groups of all shapes stay alive beside each
// other.
TEST_P(Groups, EveryShapeMakesEveryCall) {
  EXPECT_EQ(RunSchedule(11,
                        [](Communicator& world) -> absl::Status {
                          const int64_t me = world.rank();
                          std::vector<std::unique_ptr<Communicator>> alive;
                          for (const Shape& shape : Shapes()) {
                            SCOPED_TRACE(shape.name);
                            const auto [color, key] = shape.of(world.rank(), world.size());
                            SUMONCE_ASSIGN_OR_RETURN(auto group,
                                                     world.Split(color, key, shape.name));
                            EXPECT_EQ(group == nullptr, color < 0);
                            if (group == nullptr) continue;
                            const auto members = MembersOf(shape, world.rank(), world.size());
                            EXPECT_EQ(group->size(), static_cast<int>(members.size()));
                            EXPECT_EQ(members[group->rank()], me);
                            SUMONCE_RETURN_IF_ERROR(CheckSums(*group, me, members));
                            SUMONCE_RETURN_IF_ERROR(CheckMovesIn(*group, me, members));
                            alive.push_back(std::move(group));
                          }
                          return world.Barrier("end");
                        }),
            absl::OkStatus());
}

// Groups that share ranks, with calls of all of them in flight at once.
TEST_P(Groups, CallsOfCrossingGroupsAreInFlightTogether) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              std::vector<std::unique_ptr<Communicator>> groups;
              std::vector<std::vector<int64_t>> values;
              std::vector<int64_t> expected;
              for (const Shape& shape : Shapes()) {
                const auto [color, key] = shape.of(world.rank(), world.size());
                SUMONCE_ASSIGN_OR_RETURN(auto group, world.Split(color, key, shape.name));
                if (group == nullptr) continue;
                const auto members = MembersOf(shape, world.rank(), world.size());
                expected.push_back(std::accumulate(members.begin(), members.end(), int64_t{0}));
                values.push_back({world.rank()});
                groups.push_back(std::move(group));
              }
              std::vector<std::unique_ptr<Work>> works;
              for (size_t i = 0; i < groups.size(); ++i) {
                SUMONCE_ASSIGN_OR_RETURN(works.emplace_back(),
                                         groups[i]->Start({.kind = CallKind::kAllReduce,
                                                           .in = BufferOf(values[i]),
                                                           .out = BufferOf(values[i])}));
              }
              for (size_t i = works.size(); i-- > 0;) SUMONCE_RETURN_IF_ERROR(works[i]->Wait());
              for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i][0], expected[i]);
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

// Buffers that begin one element behind an allocation, and bytes at odd addresses: no element
// beside them is touched.
template <typename T>
absl::Status CheckBesides(Communicator& comm, int64_t count) {
  const T guard = InputOf<T>(1000, 17);
  std::vector<T> in(count + 2, guard);
  std::vector<T> out(count * comm.size() + 2, guard);
  for (int64_t i = 0; i < count; ++i) in[1 + i] = InputOf<T>(comm.rank(), i);
  SUMONCE_RETURN_IF_ERROR(
      comm.AllGather(BufferOf(in, 1, count), BufferOf(out, 1, count * comm.size()), "shifted"));
  std::vector<T> expected = {guard};
  for (int rank = 0; rank < comm.size(); ++rank) {
    for (int64_t i = 0; i < count; ++i) expected.push_back(InputOf<T>(rank, i));
  }
  expected.push_back(guard);
  EXPECT_TRUE(SameBits(out, expected));
  if constexpr (!std::is_same_v<T, uint8_t>) {
    SUMONCE_RETURN_IF_ERROR(
        comm.AllReduce(BufferOf(in, 1, count), BufferOf(in, 1, count), ReduceOp::kMax, "shifted"));
    EXPECT_TRUE(SameBits(std::vector<T>{in.front(), in.back()}, std::vector<T>{guard, guard}));
    for (int64_t i = 0; i < count; ++i) {
      const T greatest = ExpectedReduction<T>(ReduceOp::kMax, comm.size(), i);
      EXPECT_TRUE(SameBits(std::vector<T>{in[1 + i]}, std::vector<T>{greatest}));
    }
  }
  return absl::OkStatus();
}

TEST_P(Groups, BuffersMayBeginAnywhere) {
  EXPECT_EQ(Run([](Communicator& world) -> absl::Status {
              for (int64_t count : {int64_t{1}, int64_t{63}}) {
                SUMONCE_RETURN_IF_ERROR(CheckBesides<double>(world, count));
                SUMONCE_RETURN_IF_ERROR(CheckBesides<float>(world, count));
                SUMONCE_RETURN_IF_ERROR(CheckBesides<BFloat16>(world, count));
                SUMONCE_RETURN_IF_ERROR(CheckBesides<int32_t>(world, count));
                SUMONCE_RETURN_IF_ERROR(CheckBesides<uint8_t>(world, count));
              }
              return absl::OkStatus();
            }),
            absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Every, Groups,
                         testing::ValuesIn(ConformanceCases({1, 2, 3, 4, 8, 16, 64}, {1, 2, 5})),
                         CaseName);

}  // namespace
}  // namespace sumonce

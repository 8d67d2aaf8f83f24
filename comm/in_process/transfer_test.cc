// The chunks of a call, moved one by one in any order, make up the whole call and nothing else.
#include "comm/in_process/transfer.h"

#include <algorithm>
#include <vector>

#include "comm/conformance/cases.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

// The calls of all ranks of one collective, with buffers of int64: in[i] = 1000000 rank + i.
class Meeting {
 public:
  Meeting(CallKind kind, int size, int64_t in_count, int64_t out_count, bool in_place)
      : deposits_(size), in_(size), out_(size) {
    for (int rank = 0; rank < size; ++rank) {
      in_[rank].resize(in_count);
      for (int64_t i = 0; i < in_count; ++i) in_[rank][i] = 1000000 * rank + i;
      out_[rank].assign(out_count, -1);
      std::vector<int64_t>& target = in_place ? in_[rank] : out_[rank];
      deposits_[rank].call = {.kind = kind, .in = BufferOf(in_[rank]), .out = BufferOf(target)};
      results_.push_back(&target);
    }
  }

  // Backwards, so that nothing rests on the order. Returns the number of chunks.
  int64_t Move() {
    const Transfer transfer{std::span<const Deposit>(deposits_)};
    for (int64_t chunk = transfer.chunks() - 1; chunk >= 0; --chunk) transfer.Move(chunk);
    return transfer.chunks();
  }
  const std::vector<int64_t>& result(int rank) const { return *results_[rank]; }

 private:
  std::vector<Deposit> deposits_;
  std::vector<std::vector<int64_t>> in_, out_;
  std::vector<std::vector<int64_t>*> results_;
};

constexpr int64_t kSmallest = 4 * 1024 / 8;  // elements of the smallest chunk

constexpr int64_t kChunkCounts[] = {
    1, kSmallest - 1, kSmallest, kSmallest + 1, 9 * kSmallest + 5, 200 * kSmallest + 3};

TEST(Transfer, AllReduceCoversEveryElementOnce) {
  for (int size : {1, 2, 3, 5}) {
    for (int64_t count : kChunkCounts) {
      for (bool in_place : {false, true}) {
        Meeting meeting(CallKind::kAllReduce, size, count, count, in_place);
        meeting.Move();
        for (int rank = 0; rank < size; ++rank) {
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(meeting.result(rank)[i], 1000000 * (size * (size - 1) / 2) + size * i)
                << size << " ranks, " << count << " elements";
          }
        }
      }
    }
  }
}

TEST(Transfer, ReduceScatterAndAllGatherCoverEverySlice) {
  for (int size : {1, 2, 3, 5}) {
    for (int64_t count : kChunkCounts) {
      Meeting scatter(CallKind::kReduceScatter, size, size * count, count, false);
      Meeting gather(CallKind::kAllGather, size, count, size * count, false);
      scatter.Move();
      gather.Move();
      for (int rank = 0; rank < size; ++rank) {
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(scatter.result(rank)[i],
                    1000000 * (size * (size - 1) / 2) + size * (rank * count + i));
        }
        for (int64_t i = 0; i < size * count; ++i) {
          ASSERT_EQ(gather.result(rank)[i], 1000000 * (i / count) + i % count);
        }
      }
    }
  }
}

TEST(Transfer, AllToAllExchangesEveryPair) {
  for (bool in_place : {false, true}) {
    for (int64_t count : kChunkCounts) {
      Meeting meeting(CallKind::kAllToAll, 3, 3 * count, 3 * count, in_place);
      meeting.Move();
      for (int rank = 0; rank < 3; ++rank) {
        for (int64_t i = 0; i < 3 * count; ++i) {
          ASSERT_EQ(meeting.result(rank)[i], 1000000 * (i / count) + rank * count + i % count);
        }
      }
    }
  }
}

// A small call is one chunk, which the last rank to come moves; a larger one has one for each rank,
// a large one some; a huge one is not cut finer than claiming chunks is worth.
TEST(Transfer, ChunksFitTheCall) {
  const auto chunks = [](int size, int64_t bytes) {
    return Meeting(CallKind::kAllReduce, size, bytes / 8, bytes / 8, true).Move();
  };
  EXPECT_EQ(chunks(4, 0), 0);
  EXPECT_EQ(chunks(4, 8), 1);
  EXPECT_EQ(chunks(4, 4 << 10), 1);
  EXPECT_EQ(chunks(4, 16 << 10), 4);
  EXPECT_EQ(chunks(4, 64 << 10), 4);
  EXPECT_EQ(chunks(2, 34 << 10), 2) << "shares, not powers of two";
  EXPECT_EQ(chunks(2, 1 << 20), 8);
  EXPECT_EQ(chunks(2, 16 << 20), 128);
}

}  // namespace
}  // namespace sumonce

// The data movement alone: the ranks of a group in one place, their messages in queues, delivered
// in an order that no transport promises.
#include "comm/mpi/sliced_transfer.h"

#include <deque>
#include <map>
#include <memory>

#include "comm/conformance/cases.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

struct Delivery {
  int from, to;
  SlicedTransfer::Phase phase;
  std::string elements;
};

// Runs the calls of all members; the last pair's messages are delivered first.
void Deliver(const std::vector<Call>& calls, int slots) {
  std::map<std::pair<int, int>, std::deque<Delivery>> queues;
  std::vector<std::unique_ptr<SlicedTransfer>> transfers;
  for (int slot = 0; slot < slots; ++slot) {
    transfers.push_back(std::make_unique<SlicedTransfer>(
        calls[slot], slot, slots,
        [&queues, slot](int to, SlicedTransfer::Phase phase, std::string_view elements) {
          EXPECT_LE(elements.size(), size_t{1} << 20) << "a message has a bound";
          queues[{slot, to}].push_back({slot, to, phase, std::string(elements)});
        }));
  }
  for (auto& transfer : transfers) transfer->Start();
  while (!queues.empty()) {
    auto last = std::prev(queues.end());
    const Delivery delivery = std::move(last->second.front());
    last->second.pop_front();
    if (last->second.empty()) queues.erase(last);
    EXPECT_EQ(transfers[delivery.to]->Take(delivery.from, delivery.phase, delivery.elements),
              absl::OkStatus());
  }
  for (auto& transfer : transfers) EXPECT_TRUE(transfer->complete());
}

template <typename T>
void ExpectAllReduced(int slots, int64_t count, ReduceOp op) {
  std::vector<std::vector<T>> values;
  std::vector<Call> calls;
  for (int slot = 0; slot < slots; ++slot) values.push_back(InputsOf<T>(slot, count));
  for (auto& value : values)
    calls.push_back(
        {.kind = CallKind::kAllReduce, .in = BufferOf(value), .out = BufferOf(value), .op = op});
  Deliver(calls, slots);
  std::vector<T> expected(count);
  for (int64_t i = 0; i < count; ++i) expected[i] = ExpectedReduction<T>(op, slots, i);
  for (const auto& value : values) EXPECT_TRUE(SameBits(value, expected)) << slots << " " << count;
}

// In place, of counts below and beyond the slots and the chunks.
TEST(SlicedTransfer, AllReducesInRankOrder) {
  for (const int slots : {1, 2, 3, 5}) {
    for (const int64_t count : {0, 1, 4, 1000, 700'001}) {
      ExpectAllReduced<double>(slots, count, ReduceOp::kSum);
      ExpectAllReduced<BFloat16>(slots, count, ReduceOp::kAvg);
    }
  }
}

TEST(SlicedTransfer, ScattersTheReductionsOfEachSlice) {
  constexpr int kSlots = 3;
  constexpr int64_t kCount = 300'001;
  std::vector<std::vector<float>> in, out;
  std::vector<Call> calls;
  for (int slot = 0; slot < kSlots; ++slot) {
    in.push_back(InputsOf<float>(slot, kSlots * kCount));
    out.emplace_back(kCount);
  }
  for (int slot = 0; slot < kSlots; ++slot)
    calls.push_back(
        {.kind = CallKind::kReduceScatter, .in = BufferOf(in[slot]), .out = BufferOf(out[slot])});
  Deliver(calls, kSlots);
  for (int slot = 0; slot < kSlots; ++slot) {
    std::vector<float> expected(kCount);
    for (int64_t i = 0; i < kCount; ++i)
      expected[i] = ExpectedReduction<float>(ReduceOp::kSum, kSlots, slot * kCount + i);
    EXPECT_TRUE(SameBits(out[slot], expected)) << slot;
  }
}

TEST(SlicedTransfer, MovesWhatIsNotReduced) {
  constexpr int64_t kCount = 200'003;
  std::vector<double> sent = InputsOf<double>(3, kCount);
  std::vector<double> received(kCount);
  Deliver({{.kind = CallKind::kSend, .in = BufferOf(sent), .root = 1},
           {.kind = CallKind::kRecv, .out = BufferOf(received), .root = 0}},
          2);
  EXPECT_TRUE(SameBits(received, sent));
}

// Whatever a confused peer sends, nothing is written outside the call's buffers.
TEST(SlicedTransfer, MoreThanThereIsRoomForIsRefused) {
  std::vector<double> value(6, 1.0);
  const Call call{.kind = CallKind::kAllReduce, .in = BufferOf(value), .out = BufferOf(value)};
  SlicedTransfer transfer(call, 0, 2, [](int, SlicedTransfer::Phase, std::string_view) {});
  transfer.Start();
  const auto take = [&](int slot, SlicedTransfer::Phase phase, size_t bytes) {
    return transfer.Take(slot, phase, std::string(bytes, 'x')).code();
  };
  constexpr auto kInternal = absl::StatusCode::kInternal;
  EXPECT_EQ(take(1, SlicedTransfer::kResult, 4 * sizeof(double)), kInternal);
  EXPECT_EQ(take(1, SlicedTransfer::kInput, 4 * sizeof(double)), kInternal);
  EXPECT_EQ(take(1, SlicedTransfer::kResult, 5), kInternal) << "half an element";
  EXPECT_EQ(take(0, SlicedTransfer::kResult, 8), kInternal) << "from itself";
  EXPECT_EQ(take(2, SlicedTransfer::kResult, 8), kInternal) << "from nobody";
  EXPECT_EQ(value, std::vector<double>(6, 1.0));
}

}  // namespace
}  // namespace sumonce

// What only shows where ranks truly run at the same time.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "comm/conformance/cases.h"
#include "comm/errors.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

absl::Status RunThreads(int ranks, const RankBody& body, bool pin = true) {
  return (*Transports().Find("in_process"))
      ->run({.world_size = ranks, .executor = {.kind = ExecutorKind::kThreads, .pin_threads = pin}},
            body);
}

// A rank that has gone to sleep is woken by what it waits for, not by the end of the run.
TEST(InProcessThreads, ASleepingRankIsWokenByTheCall) {
  std::atomic<int> passed = 0;
  EXPECT_EQ(RunThreads(3,
                       [&](Communicator& world) -> absl::Status {
                         for (int64_t count : {1, 100000}) {  // moved at once; moved by all
                           std::vector<double> x(count, 1.0);
                           const int before = passed;
                           if (world.rank() == 2)
                             std::this_thread::sleep_for(std::chrono::milliseconds(30));
                           SUMONCE_RETURN_IF_ERROR(
                               world.AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kSum, "wake"));
                           ++passed;
                           // Without asking the executor for anything, which would look around.
                           for (int k = 0; passed < before / 3 * 3 + 3; ++k) {
                             if (k > 10000) return absl::DeadlineExceededError("nobody woke it");
                             std::this_thread::sleep_for(std::chrono::milliseconds(1));
                           }
                         }
                         return absl::OkStatus();
                       }),
            absl::OkStatus());
}

// One rank drops its Work while the other comes: either it was taken back, and the other learns
// that, or the sum is seen through. The dropped buffer is dead at once: sanitizers watch.
TEST(InProcessThreads, DroppingRacesWithTheMatch) {
  int matched = 0;
  int taken_back = 0;
  for (int round = 0; round < 400; ++round) {
    const int64_t count = round % 2 == 0 ? 1 : 30000;
    const absl::Status result = RunThreads(2, [&](Communicator& world) -> absl::Status {
      SUMONCE_RETURN_IF_ERROR(world.Barrier("together"));
      auto x = std::make_unique<std::vector<double>>(count, 1.0);
      const Call call{.kind = CallKind::kAllReduce, .in = BufferOf(*x), .out = BufferOf(*x)};
      for (int k = 0; k < round % 7 * 20; ++k) std::atomic_signal_fence(std::memory_order_seq_cst);
      if (world.rank() == 0) return world.Start(call).status();
      SUMONCE_RETURN_IF_ERROR(world.Run(call));
      EXPECT_EQ(*x, std::vector<double>(count, 2.0));
      return absl::OkStatus();
    });
    if (result.ok()) {
      ++matched;
    } else {
      EXPECT_EQ(KindOf(result), RunFailure::kDeadlock) << result;
      ++taken_back;
    }
  }
  EXPECT_EQ(matched + taken_back, 400);
}

// A call that has long been complete returns the status of an Abort that came before its Wait, as
// every other call does.
TEST(InProcessThreads, AbortReachesCompleteCalls) {
  const absl::Status reason = absl::CancelledError("enough");
  const absl::Status result = RunThreads(2, [&](Communicator& world) -> absl::Status {
    SUMONCE_ASSIGN_OR_RETURN(const auto early, world.Start({.kind = CallKind::kBarrier}));
    SUMONCE_RETURN_IF_ERROR(world.Barrier("all have started"));
    world.Abort(reason);
    EXPECT_EQ(early->Wait(), reason);
    return absl::OkStatus();
  });
  EXPECT_EQ(result, reason);
}

// A random program of collectives of all sizes, with up to four in flight that each rank waits for
// in an order of its own.
TEST(InProcessThreads, RandomProgramsSumExactly) {
  constexpr int kCalls = 400;
  for (const auto& [ranks, pin] : {std::pair(2, true), std::pair(4, true), std::pair(5, false)}) {
    const RandomStream program(7, "program");
    EXPECT_EQ(RunThreads(
                  ranks,
                  [&, ranks = ranks](Communicator& world) -> absl::Status {
                    const RandomStream mine(static_cast<uint64_t>(world.rank()), "order");
                    struct Flight {
                      std::vector<int64_t> values;
                      std::unique_ptr<Work> work;
                    };
                    std::vector<Flight> flights;
                    const auto land = [&](size_t k) -> absl::Status {
                      SUMONCE_RETURN_IF_ERROR(flights[k].work->Wait());
                      for (size_t i = 0; i < flights[k].values.size(); ++i) {
                        if (flights[k].values[i] !=
                            ranks * static_cast<int64_t>(i) + ranks * (ranks - 1) / 2)
                          return absl::DataLossError("a wrong sum");
                      }
                      flights.erase(flights.begin() + static_cast<std::ptrdiff_t>(k));
                      return absl::OkStatus();
                    };
                    for (int call = 0; call < kCalls; ++call) {
                      const double draw = program.Uniform(call);
                      const int64_t count = static_cast<int64_t>(40000 * draw * draw * draw);
                      Flight flight;
                      flight.values.resize(count);
                      for (int64_t i = 0; i < count; ++i) flight.values[i] = i + world.rank();
                      const Buffer buffer = BufferOf(flight.values);
                      SUMONCE_ASSIGN_OR_RETURN(
                          flight.work,
                          world.Start({.kind = CallKind::kAllReduce, .in = buffer, .out = buffer}));
                      flights.push_back(std::move(flight));
                      if (flights.size() < 4) continue;
                      SUMONCE_RETURN_IF_ERROR(land(static_cast<size_t>(mine.Uniform(call) * 4)));
                    }
                    while (!flights.empty()) SUMONCE_RETURN_IF_ERROR(land(0));
                    return absl::OkStatus();
                  },
                  pin),
              absl::OkStatus());
  }
}

}  // namespace
}  // namespace sumonce

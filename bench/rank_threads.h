// The threads and the loop that all forms of the all-reduce benchmark share: one thread per rank,
// pinned as ThreadExecutor pins, and a barrier that waits as it waits, so that forms differ in what
// they measure only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "bench/buffers.h"
#include "benchmark/benchmark.h"
#include "comm/core_affinity.h"

namespace sumonce::bench {

class SpinBarrier {
 public:
  explicit SpinBarrier(int members) : members_(members) {}

  void Wait() {
    const int64_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == members_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins > 60) std::this_thread::yield();
    }
  }

 private:
  const int members_;
  alignas(64) std::atomic<int> arrived_ = 0;
  alignas(64) std::atomic<int64_t> round_ = 0;
};

// The benchmark's loop: rank 0 asks whether there is another batch, and all ranks make its calls.
// Adds the counters median_us and best_us: the time of one call in the median and in the quickest
// batch, which a moment without a core does not move as it moves the mean.
class Batches {
 public:
  Batches(benchmark::State& state, int ranks, int64_t calls)
      : state_(state), calls_(calls), barrier_(ranks) {}
  ~Batches() {
    state_.counters["median_us"] = MedianUs(times_us_);
    state_.counters["best_us"] = BestUs(times_us_);
  }

  // By every rank.
  template <typename OneCall>
  void Run(int rank, const OneCall& call) {
    while (true) {
      if (rank == 0) more_ = state_.KeepRunningBatch(calls_);
      barrier_.Wait();
      if (!more_) return;
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t k = 0; k < calls_; ++k) call();
      barrier_.Wait();
      const std::chrono::duration<double, std::micro> elapsed_us =
          std::chrono::steady_clock::now() - begin;
      if (rank == 0) times_us_.push_back(elapsed_us.count() / static_cast<double>(calls_));
    }
  }

 private:
  benchmark::State& state_;
  const int64_t calls_;
  SpinBarrier barrier_;
  bool more_ = true;
  std::vector<double> times_us_;  // of one call, by batch
};

// Runs body(rank) on a thread per rank.
inline void RunRankThreads(int ranks, const std::function<void(int)>& body) {
  const std::vector<int> cores = AllowedCores();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      if (!cores.empty()) PinThread(cores[rank % cores.size()]);
      body(rank);
    });
  }
}

}  // namespace sumonce::bench

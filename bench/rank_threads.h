// The threads and the loop that all forms of the all-reduce benchmark share: one thread per rank,
// pinned as ThreadExecutor pins, and a barrier that waits as it waits, so that forms differ in what
// they measure only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

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
class Batches {
 public:
  Batches(benchmark::State& state, int ranks, int64_t calls)
      : state_(state), calls_(calls), barrier_(ranks) {}

  // By every rank.
  template <typename OneCall>
  void Run(int rank, const OneCall& call) {
    while (true) {
      if (rank == 0) more_ = state_.KeepRunningBatch(calls_);
      barrier_.Wait();
      if (!more_) return;
      for (int64_t k = 0; k < calls_; ++k) call();
      barrier_.Wait();
    }
  }

 private:
  benchmark::State& state_;
  const int64_t calls_;
  SpinBarrier barrier_;
  bool more_ = true;
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

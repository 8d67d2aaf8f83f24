// The in-process all-reduce beside its naive form: one thread sums all ranks' buffers under a
// barrier, then every rank copies. Same threads, same buffers, same process, so that their ratio is
// what counts. Columns: bytes per rank and, as nccl-tests has it, busbw = 2 (N-1)/N * bytes / time.
#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "base/status.h"
#include "benchmark/benchmark.h"
#include "comm/transport.h"

namespace sumonce {
namespace {

using Buffers = std::vector<std::vector<float>>;

Buffers MakeBuffers(int ranks, int64_t bytes) {
  return Buffers(ranks, std::vector<float>(bytes / sizeof(float), 0.5f));
}

void Report(benchmark::State& state, int ranks, int64_t bytes) {
  const double moved = 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes);
  state.counters["busbw"] =
      benchmark::Counter(moved * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
  state.counters["ranks"] = ranks;
}

// Rank 0 runs the benchmark's loop and says, by the first element of a broadcast, whether there is
// another round.
absl::Status Rounds(benchmark::State& state, Communicator& world, std::vector<float>& values) {
  const Buffer buffer{values.data(), static_cast<int64_t>(values.size()), DType::kFloat32};
  int32_t more = 1;
  const Buffer go_on{&more, 1, DType::kInt32};
  while (true) {
    if (world.rank() == 0) more = state.KeepRunningBatch(1) ? 1 : 0;
    SUMONCE_RETURN_IF_ERROR(world.Broadcast(go_on, go_on, 0, "more"));
    if (more == 0) return absl::OkStatus();
    SUMONCE_RETURN_IF_ERROR(world.AllReduce(buffer, buffer, ReduceOp::kAvg, "bench"));
  }
}

void BM_AllReduceInProcess(benchmark::State& state, ExecutorKind executor) {
  const int ranks = static_cast<int>(state.range(0));
  const int64_t bytes = state.range(1);
  Buffers buffers = MakeBuffers(ranks, bytes);
  const Transport* transport = *Transports().Find("in_process");
  const absl::Status status = transport->run(
      {.world_size = ranks, .executor = {.kind = executor}},
      [&](Communicator& world) { return Rounds(state, world, buffers[world.rank()]); });
  if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  Report(state, ranks, bytes);
}

void NaiveSum(const Buffers& buffers, std::vector<float>& total) {
  total = buffers.front();
  for (size_t rank = 1; rank < buffers.size(); ++rank) {
    for (size_t i = 0; i < total.size(); ++i) total[i] += buffers[rank][i];
  }
  for (float& value : total) value /= static_cast<float>(buffers.size());
}

void BM_AllReduceNaive(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  const int64_t bytes = state.range(1);
  Buffers buffers = MakeBuffers(ranks, bytes);
  std::vector<float> total(buffers.front().size());
  std::barrier<> barrier(ranks);
  bool more = true;
  const auto rank_main = [&](int rank) {
    while (true) {
      if (rank == 0) more = state.KeepRunningBatch(1);
      barrier.arrive_and_wait();
      if (!more) return;
      if (rank == 0) NaiveSum(buffers, total);
      barrier.arrive_and_wait();
      buffers[rank] = total;
      barrier.arrive_and_wait();
    }
  };
  std::vector<std::jthread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(rank_main, rank);
  rank_main(0);
  Report(state, ranks, bytes);
}

void Sizes(benchmark::internal::Benchmark* bench) {
  for (int64_t ranks : {2, 4, 8}) {
    for (int64_t bytes : {int64_t{4}, int64_t{64} << 10, int64_t{1} << 20, int64_t{64} << 20}) {
      bench->Args({ranks, bytes});
    }
  }
  bench->ArgNames({"ranks", "bytes"})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(BM_AllReduceInProcess, threads, ExecutorKind::kThreads)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_AllReduceInProcess, fibers, ExecutorKind::kFibers)->Apply(Sizes);
BENCHMARK(BM_AllReduceNaive)->Apply(Sizes);

}  // namespace
}  // namespace sumonce

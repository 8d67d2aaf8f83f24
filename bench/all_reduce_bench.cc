// The in-process all-reduce in place, beside other ways to do the same and beside the limit of the
// memory, per bytes a rank:
//
//   in_process  sumonce's communicator on threads: fixed order, each slice summed by one owner
//   fibers      the same on one thread
//   naive       one thread sums all buffers, then all copy the sum
//   arrival     every rank adds its buffer to a shared sum in the order of arrival, a lock per
//               chunk; then all copy
//   limit       the least that memory has to do for it: every thread reads and writes its share of
//               all buffers in place; the fastest of several numbers of streams and lengths of
//               the piece of one stream before the next is touched counts
//   gloo        Gloo's all-reduce over TCP on the loopback device, where Gloo is installed
//
// bench/compare_all_reduce runs these and MPI, interleaved, and prints ratios of medians.
#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "bench/buffers.h"
#include "bench/gloo_peer.h"
#include "bench/rank_threads.h"
#include "benchmark/benchmark.h"
#include "comm/transport.h"

namespace sumonce::bench {
namespace {

struct Size {
  int ranks;
  int64_t bytes;  // per rank
};

Size SizeOfRun(const benchmark::State& state) {
  return {static_cast<int>(state.range(0)), state.range(1)};
}

// busbw as nccl-tests defines it, and memory traffic: each element is read and written once per
// rank.
void Report(benchmark::State& state, Size size) {
  using benchmark::Counter;
  const double bytes = static_cast<double>(size.bytes) * static_cast<double>(state.iterations());
  state.counters["busbw"] =
      Counter(2.0 * (size.ranks - 1) / size.ranks * bytes, Counter::kIsRate, Counter::kIs1000);
  state.counters["traffic"] = Counter(2.0 * size.ranks * bytes, Counter::kIsRate, Counter::kIs1000);
}

absl::Status RunInProcess(Size size, ExecutorKind executor, const RankBody& body) {
  return (*Transports().Find("in_process"))
      ->run({.world_size = size.ranks, .executor = {.kind = executor}}, body);
}

void BM_InProcess(benchmark::State& state, DType dtype) {
  const Size size = SizeOfRun(state);
  const auto buffers = MakeZeroBuffers(size.ranks, size.bytes);
  Batches batches(state, size.ranks, CallsPerBatch(size.bytes));
  const auto body = [&](Communicator& world) {
    const Buffer buffer{buffers[world.rank()].get(), size.bytes / SizeOf(dtype), dtype};
    absl::Status status;
    batches.Run(world.rank(), [&] {
      if (status.ok()) status = world.AllReduce(buffer, buffer, ReduceOp::kSum, "bench");
    });
    return status;
  };
  const absl::Status status = RunInProcess(size, ExecutorKind::kThreads, body);
  if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  Report(state, size);
}

// Fibers cannot meet at a barrier of threads: they are measured by a whole run of calls.
void BM_Fibers(benchmark::State& state) {
  const Size size = SizeOfRun(state);
  const auto buffers = MakeZeroBuffers(size.ranks, size.bytes);
  const int64_t calls = CallsPerBatch(size.bytes);
  const auto body = [&](Communicator& world) -> absl::Status {
    const Buffer buffer{buffers[world.rank()].get(), size.bytes / 4, DType::kFloat32};
    for (int64_t k = 0; k < calls; ++k) {
      absl::Status status = world.AllReduce(buffer, buffer, ReduceOp::kSum, "bench");
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };
  while (state.KeepRunningBatch(calls)) {
    const absl::Status status = RunInProcess(size, ExecutorKind::kFibers, body);
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  Report(state, size);
}

float* Floats(const ZeroBuffer& buffer) { return static_cast<float*>(buffer.get()); }

void BM_Naive(benchmark::State& state) {
  const Size size = SizeOfRun(state);
  const int64_t count = size.bytes / 4;
  const auto buffers = MakeZeroBuffers(size.ranks, size.bytes);
  const ZeroBuffer total = MakeZeroBuffer(size.bytes);
  Batches batches(state, size.ranks, CallsPerBatch(size.bytes));
  SpinBarrier barrier(size.ranks);
  RunRankThreads(size.ranks, [&](int rank) {
    batches.Run(rank, [&] {
      barrier.Wait();
      if (rank == 0) {
        std::copy_n(Floats(buffers[0]), count, Floats(total));
        for (int other = 1; other < size.ranks; ++other) {
          const float* in = Floats(buffers[other]);
          float* sum = Floats(total);
          for (int64_t i = 0; i < count; ++i) sum[i] += in[i];
        }
      }
      barrier.Wait();
      std::copy_n(Floats(total), count, Floats(buffers[rank]));
    });
  });
  Report(state, size);
}

// A sum that ranks add to in the order in which they come, chunk by chunk.
class ArrivalSum {
 public:
  explicit ArrivalSum(int64_t bytes)
      : count_(bytes / 4),
        total_(MakeZeroBuffer(bytes)),
        locks_((count_ + kChunk - 1) / kChunk),
        added_(locks_.size(), 0) {}

  // Every rank begins elsewhere, so that they do not queue for the same chunk.
  void Add(const float* in, int rank, int ranks) {
    const int64_t chunks = static_cast<int64_t>(locks_.size());
    for (int64_t k = 0; k < chunks; ++k) {
      const int64_t chunk = (chunks * rank / ranks + k) % chunks;
      const int64_t begin = chunk * kChunk;
      const int64_t end = std::min(count_, begin + kChunk);
      float* sum = Floats(total_);
      const std::lock_guard<std::mutex> lock(locks_[chunk]);
      if (added_[chunk]++ % ranks == 0) {
        std::copy(in + begin, in + end, sum + begin);
      } else {
        for (int64_t i = begin; i < end; ++i) sum[i] += in[i];
      }
    }
  }
  void CopyTo(float* out) const { std::copy_n(Floats(total_), count_, out); }

 private:
  static constexpr int64_t kChunk = 64 * 1024 / 4;

  const int64_t count_;
  ZeroBuffer total_;
  std::vector<std::mutex> locks_;
  std::vector<int64_t> added_;
};

void BM_Arrival(benchmark::State& state) {
  const Size size = SizeOfRun(state);
  const auto buffers = MakeZeroBuffers(size.ranks, size.bytes);
  ArrivalSum sum(size.bytes);
  Batches batches(state, size.ranks, CallsPerBatch(size.bytes));
  SpinBarrier barrier(size.ranks);
  RunRankThreads(size.ranks, [&](int rank) {
    batches.Run(rank, [&] {
      sum.Add(Floats(buffers[rank]), rank, size.ranks);
      barrier.Wait();
      sum.CopyTo(Floats(buffers[rank]));
      barrier.Wait();
    });
  });
  Report(state, size);
}

// Block by block through all streams at once.
__attribute__((target_clones("avx512f", "avx2", "default"))) void ScaleInPlace(
    const std::vector<float*>& streams, int64_t count, int64_t block, float factor) {
  for (int64_t i = 0; i < count; i += block) {
    const int64_t end = std::min(i + block, count);
    for (float* stream : streams) {
      for (int64_t k = i; k < end; ++k) stream[k] *= factor;
    }
  }
}

void BM_Limit(benchmark::State& state) {
  const Size size = SizeOfRun(state);
  const int64_t streams_per_buffer = state.range(2);
  const int64_t count = size.bytes / 4 / size.ranks / streams_per_buffer;
  const int64_t block = state.range(3) / 4;
  const auto buffers = MakeZeroBuffers(size.ranks, size.bytes);
  Batches batches(state, size.ranks, CallsPerBatch(size.bytes));
  volatile float factor = 1.0f;
  RunRankThreads(size.ranks, [&](int rank) {
    std::vector<float*> streams;
    for (const ZeroBuffer& buffer : buffers) {
      for (int64_t k = 0; k < streams_per_buffer; ++k)
        streams.push_back(Floats(buffer) + (rank * streams_per_buffer + k) * count);
    }
    batches.Run(rank, [&] { ScaleInPlace(streams, count, block, factor); });
  });
  Report(state, size);
}

void BM_Gloo(benchmark::State& state) {
  const Size size = SizeOfRun(state);
  const auto buffers = MakeZeroBuffers(size.ranks, size.bytes);
  Batches batches(state, size.ranks, std::min<int64_t>(50, CallsPerBatch(size.bytes)));
  const std::string error = RunGloo(size.ranks, [&](int rank, const GlooAllReduce& all_reduce) {
    batches.Run(rank, [&] { all_reduce(Floats(buffers[rank]), size.bytes / 4); });
  });
  if (!error.empty()) state.SkipWithError(error.c_str());
  Report(state, size);
}

const std::vector<int64_t> kRanks = {2, 4};
const std::vector<int64_t> kBytes = {4,       1 << 10, 16 << 10, 64 << 10, 256 << 10,
                                     1 << 20, 4 << 20, 16 << 20, 64 << 20, 512 << 20};

void Form(benchmark::internal::Benchmark* bench, std::vector<int64_t> bytes = kBytes) {
  bench->ArgNames({"ranks", "bytes"})->ArgsProduct({kRanks, std::move(bytes)});
  bench->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void RegisterAll() {
  using benchmark::RegisterBenchmark;
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    const std::string name = "in_process/" + std::string(Name(dtype));
    std::vector<int64_t> bytes = kBytes;
    bytes.front() = std::max<int64_t>(bytes.front(), SizeOf(dtype));
    Form(RegisterBenchmark(name.c_str(), BM_InProcess, dtype), bytes);
  }
  Form(RegisterBenchmark("fibers/float32", BM_Fibers));
  Form(RegisterBenchmark("naive/float32", BM_Naive));
  Form(RegisterBenchmark("arrival/float32", BM_Arrival));
  RegisterBenchmark("limit/float32", BM_Limit)
      ->ArgNames({"ranks", "bytes", "streams", "block"})
      ->ArgsProduct({kRanks,
                     {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 512 << 20},
                     {1, 2, 4},
                     {64, 4 << 10}})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  if (HasGloo()) Form(RegisterBenchmark("gloo/float32", BM_Gloo));
}

}  // namespace
}  // namespace sumonce::bench

int main(int argc, char** argv) {
  sumonce::bench::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 4;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

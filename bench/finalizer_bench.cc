// What the tensor-parallel step of a finalizer costs for one rank: its lists coalesced as
// Megatron-Core sends them, cut into buckets, and one call per parameter; before and after the cure
// of the scenario. Buffers have the sizes of bench/hybrid_24_layers.textproto, as float32, the
// dtype of Megatron's main_grad. Columns: calls and bytes a step.
#include <algorithm>
#include <vector>

#include "base/status.h"
#include "benchmark/benchmark.h"
#include "comm/transport.h"
#include "cost/page_buffer.h"
#include "cost/traffic.h"
#include "sim/scenario_reader.h"

namespace sumonce {
namespace {

constexpr int64_t kBucketElements = 1 << 20;

const Scenario& Hybrid() {
  static const Scenario& scenario = *[] {
    const std::string path = SUMONCE_SOURCE_DIR "/bench/hybrid_24_layers.textproto";
    ReadResult read = ReadScenario(path, "bench/hybrid_24_layers", {});
    SUMONCE_CHECK(read.ok()) << path << " has mistakes; sumonce validate prints them";
    return new Scenario(std::move(read.scenario));
  }();
  return scenario;
}

std::vector<int64_t> Sizes(bool cured, Bucketing bucketing) {
  std::vector<Edit> edits = Hybrid().defects;
  if (cured) edits.clear();
  std::vector<int64_t> sizes;
  for (const FinalizerCall& call : FinalizerCalls(Hybrid(), edits)) {
    if (call.group != "tp") continue;
    for (const int64_t size : CallSizes(call, bucketing, kBucketElements)) sizes.push_back(size);
  }
  return sizes;
}

// Rank 0 runs the benchmark's loop and tells the others whether there is another round.
absl::Status Rounds(benchmark::State& state, Communicator& world,
                    const std::vector<int64_t>& sizes) {
  const int64_t largest = sizes.empty() ? 1 : *std::max_element(sizes.begin(), sizes.end());
  SUMONCE_ASSIGN_OR_RETURN(const PageBuffer memory,
                           PageBuffer::Create(largest * static_cast<int64_t>(sizeof(float))));
  int32_t more = 1;
  const Buffer go_on{&more, 1, DType::kInt32};
  while (true) {
    if (world.rank() == 0) more = state.KeepRunningBatch(1) ? 1 : 0;
    SUMONCE_RETURN_IF_ERROR(world.Broadcast(go_on, go_on, 0, "more"));
    if (more == 0) return absl::OkStatus();
    for (const int64_t size : sizes) {
      const Buffer buffer{memory.data(), size, DType::kFloat32};
      SUMONCE_RETURN_IF_ERROR(world.AllReduce(buffer, buffer, ReduceOp::kSum, "finalizer"));
    }
  }
}

void BM_Finalizer(benchmark::State& state, bool cured, Bucketing bucketing) {
  const std::vector<int64_t> sizes = Sizes(cured, bucketing);
  const RunOptions options{.world_size = static_cast<int>(state.range(0)),
                           .executor = {.kind = ExecutorKind::kThreads}};
  const absl::Status status =
      (*Transports().Find("in_process"))->run(options, [&](Communicator& world) {
        return Rounds(state, world, sizes);
      });
  if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  int64_t elements = 0;
  for (const int64_t size : sizes) elements += size;
  state.counters["calls"] = static_cast<double>(sizes.size());
  state.counters["bytes"] = static_cast<double>(elements) * sizeof(float);
}

void Ranks(benchmark::internal::Benchmark* bench) {
  bench->Arg(2)->Arg(4)->ArgName("ranks")->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(BM_Finalizer, broken_coalesced, false, Bucketing::kCoalesced)->Apply(Ranks);
BENCHMARK_CAPTURE(BM_Finalizer, cured_coalesced, true, Bucketing::kCoalesced)->Apply(Ranks);
BENCHMARK_CAPTURE(BM_Finalizer, cured_bucketed, true, Bucketing::kBucketed)->Apply(Ranks);
BENCHMARK_CAPTURE(BM_Finalizer, cured_per_parameter, true, Bucketing::kPerParameter)->Apply(Ranks);

// The sizes themselves: what a prediction costs.
void BM_TrafficOfHybrid(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(TrafficOf(Hybrid(), Hybrid().defects));
}
BENCHMARK(BM_TrafficOfHybrid)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sumonce

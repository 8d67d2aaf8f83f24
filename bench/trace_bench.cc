// What reading and proving recorded steps costs: a 2-layer job, and a 40-layer model at its real
// size (10,418 operations).
#include <benchmark/benchmark.h>

#include "trace/prove_traces.h"

namespace sumonce::trace {
namespace {

const char* const kJobs[] = {"lora-replica-bug", "gdn-gamma-tp2-bug",
                             "gpt-40-layers-36e9-parameters-right"};

TraceSet ReadJob(int64_t job) {
  auto set = ReadTraces(std::string(SUMONCE_SOURCE_DIR) + "/tests/data/traces/" + kJobs[job]);
  if (!set.ok()) std::abort();
  return *std::move(set);
}

void BM_ReadTraces(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(ReadJob(state.range(0)));
  state.SetLabel(kJobs[state.range(0)]);
}
BENCHMARK(BM_ReadTraces)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

void BM_ProveTraces(benchmark::State& state) {
  const TraceSet set = ReadJob(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(ProveTraces(set));
  state.SetLabel(kJobs[state.range(0)]);
}
BENCHMARK(BM_ProveTraces)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sumonce::trace

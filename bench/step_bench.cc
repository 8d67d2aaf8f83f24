// What a simulated step, its proof and a whole judged scenario cost.
#include <benchmark/benchmark.h>

#include <span>
#include <string>

#include "sim/scenario_reader.h"
#include "sim/simulator.h"
#include "verify/prove.h"
#include "verify/runner.h"

namespace sumonce {
namespace {

Scenario Read(const char* name) {
  ReadResult result =
      ReadScenario(std::string(SUMONCE_SOURCE_DIR) + "/scenarios/" + name + ".textproto", name, {});
  if (!result.ok()) std::abort();
  return std::move(result.scenario);
}

const char* const kNames[] = {"lora/row_flag_missing", "gdn/gamma_flagged", "lora/pr_173"};

// One step of all ranks: forward, backward, finalizer, optimizer, record.
void BM_Step(benchmark::State& state) {
  Scenario scenario = Read(kNames[state.range(0)]);
  scenario.steps = 1;
  Model model(EffectiveModel(scenario));
  const Weights start = *StartWeights(scenario, model.params());
  for (auto _ : state) benchmark::DoNotOptimize(Simulate(scenario, {}, start, SimOptions()));
  state.SetLabel(kNames[state.range(0)]);
}
BENCHMARK(BM_Step)->DenseRange(0, 2)->Unit(benchmark::kMicrosecond);

// The same of a 24-layer hybrid at hidden 256 with LoRA on every target, tp 4, 128 tokens.
void BM_StepOf24Layers(benchmark::State& state) {
  ReadResult result =
      ReadScenario(SUMONCE_SOURCE_DIR "/bench/hybrid_24_small.textproto", "hybrid_24_small", {});
  if (!result.ok()) std::abort();
  Model model(EffectiveModel(result.scenario));
  const Weights start = *StartWeights(result.scenario, model.params());
  for (auto _ : state) benchmark::DoNotOptimize(Simulate(result.scenario, {}, start, SimOptions()));
}
BENCHMARK(BM_StepOf24Layers)->Unit(benchmark::kMillisecond);

// The proof for every size: one abstract run and the finalizer's rules on states.
void BM_Proof(benchmark::State& state) {
  const Scenario scenario = Read(kNames[state.range(0)]);
  for (auto _ : state) benchmark::DoNotOptimize(Prove(scenario, scenario.defects));
  state.SetLabel(kNames[state.range(0)]);
}
BENCHMARK(BM_Proof)->DenseRange(0, 2)->Unit(benchmark::kMicrosecond);

// 10^5 configurations of the case with one adapted layer, no two alike: version, switches, loss,
// mesh and a mark set or cleared.
void BM_ProofOfConfigurations(benchmark::State& state) {
  const Scenario base = Read(kNames[0]);
  constexpr int kCount = 100'000;
  constexpr Mark kMarks[] = {Mark::kSequenceParallel, Mark::kAverageGradientsAcrossTpDomain,
                             Mark::kTensorModelParallel, Mark::kAllreduce};
  constexpr int kTp[] = {2, 3, 4, 6, 12};
  const char* const kParams[] = {"*", "*.lora_A", "*.lora_B", "*.linear_proj.*"};
  for (auto _ : state) {
    for (int number = 0; number < kCount; ++number) {
      int rest = number;
      const auto digit = [&rest](int base) {
        const int value = rest % base;
        rest /= base;
        return value;
      };
      Scenario scenario = base;
      scenario.finalizer = "megatron_core_0_" + std::to_string(12 + digit(8));
      scenario.sequence_parallel = digit(2) == 0;
      scenario.qk_layernorm = digit(2) == 0;
      scenario.loss = digit(2) == 0 ? LossMode::kPerToken : LossMode::kMeanOfCells;
      scenario.mesh.tp = kTp[digit(5)];
      const Edit edit{
          .kind = MarkEdit{.param = kParams[digit(4)],
                           .mark = kMarks[digit(4)],
                           .set = digit(2) == 0,
                           .when = digit(2) == 0 ? When::kAtBuild : When::kAfterBackward},
          .location = {}};
      scenario.mesh.dp = 1 + rest;
      benchmark::DoNotOptimize(Prove(scenario, std::span(&edit, 1)));
    }
  }
}
BENCHMARK(BM_ProofOfConfigurations)->Unit(benchmark::kSecond)->Iterations(1);

// At a real model's size: 24 layers at hidden 2048.
void BM_ProofOf24Layers(benchmark::State& state) {
  ReadResult result =
      ReadScenario(SUMONCE_SOURCE_DIR "/bench/hybrid_24_layers.textproto", "hybrid_24_layers", {});
  if (!result.ok()) std::abort();
  for (auto _ : state) benchmark::DoNotOptimize(Prove(result.scenario, {}));
}
BENCHMARK(BM_ProofOf24Layers)->Unit(benchmark::kMicrosecond);

// Everything: run, reference, diagnosis, proof, proposed cure tried, cured twin.
void BM_Verdict(benchmark::State& state) {
  const Scenario scenario = Read(kNames[state.range(0)]);
  for (auto _ : state) benchmark::DoNotOptimize(RunScenario(scenario, RunnerOptions()));
  state.SetLabel(kNames[state.range(0)]);
}
BENCHMARK(BM_Verdict)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sumonce

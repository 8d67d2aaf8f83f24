// Every shipped scenario of up to eight ranks over the NCCL transport on fake devices: the bits
// that digests.txt records for ranks in memory.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "sim/simulator.h"
#include "tests/system/shipped.h"

namespace sumonce {
namespace {

constexpr int kMaxRanks = 8;

std::map<std::string, std::string> RecordedDigests() {
  std::map<std::string, std::string> recorded;
  std::ifstream in(std::string(SUMONCE_SOURCE_DIR) + "/tests/system/digests.txt");
  std::string name, digest;
  while (in >> name >> digest) recorded[name] = digest;
  return recorded;
}

void ExpectRecordedDigests(ExecutorKind executor) {
  int compared = 0;
  for (const auto& [name, digest] : RecordedDigests()) {
    const Scenario scenario = testing::Shipped(name);
    if (scenario.mesh.world_size() > kMaxRanks) continue;
    Model model(EffectiveModel(scenario));
    const absl::StatusOr<Weights> start = StartWeights(scenario, model.params());
    ASSERT_TRUE(start.ok()) << start.status();
    SimOptions options;
    options.transport = "fake_nccl";
    options.executor.kind = executor;
    const SimResult result = Simulate(scenario, scenario.defects, *start, options);
    // The ranks' failures are part of some scenarios; the devices' never are.
    EXPECT_FALSE(result.status.message().find("fake_nccl") != result.status.message().npos)
        << name << ": " << result.status;
    EXPECT_EQ(result.digest, digest) << name;
    ++compared;
  }
  EXPECT_GE(compared, 40);
}

TEST(FakeNccl, EveryScenarioHasItsRecordedDigest) { ExpectRecordedDigests(ExecutorKind::kFibers); }

TEST(FakeNccl, EveryScenarioHasItsRecordedDigestOnThreads) {
  ExpectRecordedDigests(ExecutorKind::kThreads);
}

}  // namespace
}  // namespace sumonce

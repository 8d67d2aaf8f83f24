// Same scenario, seed: the same bits, whatever executes the ranks and in whatever order, and
// whatever compiled the program: digests.txt holds every scenario's, and every build of every
// compiler runs this test against the same file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "sim/simulator.h"
#include "tests/system/shipped.h"

namespace sumonce {
namespace {

std::string DigestOf(const Scenario& scenario, const ExecutorOptions& executor) {
  Model model(EffectiveModel(scenario));
  const absl::StatusOr<Weights> start = StartWeights(scenario, model.params());
  EXPECT_TRUE(start.ok()) << start.status();
  SimOptions options;
  options.executor = executor;
  return Simulate(scenario, scenario.defects, *start, options).digest;
}

TEST(Digest, SameOverExecutorsSchedulesAndRepetitions) {
  for (const char* name : {"lora/row_flag_missing", "gdn/gamma_flagged_dp2", "lora/pr_173",
                           "norm/qk_layernorm", "dp/mean_of_cells", "real/tiny_lm_lora"}) {
    const Scenario scenario = testing::Shipped(name);
    const std::string first = DigestOf(scenario, {});
    EXPECT_EQ(first, DigestOf(scenario, {})) << name << ": twice in a row";
    EXPECT_EQ(first, DigestOf(scenario, {.schedule = 7})) << name << ": schedule 7";
    EXPECT_EQ(first, DigestOf(scenario, {.kind = ExecutorKind::kThreads})) << name << ": threads";
  }
}

TEST(Digest, ASeedChangesIt) {
  Scenario scenario = testing::Shipped("lora/row_flag_missing");
  const std::string first = DigestOf(scenario, {});
  scenario.seed = 8;
  EXPECT_NE(first, DigestOf(scenario, {}));
}

// SUMONCE_WRITE_DIGESTS=<path> writes the file anew.
TEST(Digest, EqualTheRecordedOnes) {
  std::map<std::string, std::string> digests;
  for (const ScenarioFile& file : testing::ShippedFiles()) {
    const Scenario scenario = testing::Shipped(file.name);
    if (!testing::EndsEarly(scenario) && !testing::HasNoDigest(scenario) && scenario.steps <= 3)
      digests[file.name] = DigestOf(scenario, {});
  }
  if (const char* path = std::getenv("SUMONCE_WRITE_DIGESTS")) {
    std::ofstream out(path);
    for (const auto& [name, digest] : digests) out << name << " " << digest << "\n";
  }
  std::map<std::string, std::string> recorded;
  std::ifstream in(std::string(SUMONCE_SOURCE_DIR) + "/tests/system/digests.txt");
  std::string name, digest;
  while (in >> name >> digest) recorded[name] = digest;
  EXPECT_EQ(digests, recorded);
}

}  // namespace
}  // namespace sumonce

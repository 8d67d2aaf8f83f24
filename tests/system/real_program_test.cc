// Shipped scenarios against recorded steps of the real programs that they restate: Megatron-Core's
// multi-latent attention with Transformer Engine's layer spec and its own, two layers each
// (tests/data/traces, which say what a proof of those operations gives for every parameter).
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "tests/system/shipped.h"
#include "verify/run_once.h"

namespace sumonce {
namespace {

struct Pair {
  const char* scenario;
  const char* trace;
};

class RealProgram : public ::testing::TestWithParam<Pair> {};

// The local spec's norm in front of the MLP stands alone; here it is fused.
std::string OurName(const std::string& theirs) {
  return absl::StrReplaceAll(theirs,
                             {{"pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"}});
}

nlohmann::json ExpectedOf(const std::string& trace) {
  std::ifstream file(SUMONCE_TEST_DATA "/traces/" + trace + "/expected.json");
  return nlohmann::json::parse(file).at("parameters");
}

// Where the real program's state is lost, the numbers must be wrong, by what arrives or by the rows
// of the one projection that both kinds of gradient reach.
void ExpectLost(const Verdict& numbers, const Proof& proof) {
  EXPECT_EQ(numbers.outcome, Outcome::kWrong);
  EXPECT_TRUE(numbers.mechanism == Mechanism::kUpstream ||
              numbers.mechanism == Mechanism::kMixedUse)
      << Name(numbers.mechanism);
  EXPECT_EQ(numbers.operation, "decoder.layers.1.self_attention.k_pos_emb/Copy#0");
  EXPECT_TRUE(proof.outcome == Outcome::kNoStatement || proof.mechanism == Mechanism::kMixedUse);
}

TEST_P(RealProgram, HasTheSameVerdicts) {
  const Scenario scenario = testing::Shipped(GetParam().scenario);
  const RunOnce run = RunScenarioOnce(scenario, scenario.defects, SimOptions());
  ASSERT_TRUE(run.run_status.ok()) << run.run_status;
  const nlohmann::json expected = ExpectedOf(GetParam().trace);
  EXPECT_EQ(expected.size(), run.numbers.size());
  for (const auto& [theirs, entry] : expected.items()) {
    SCOPED_TRACE(theirs);
    ASSERT_TRUE(run.numbers.contains(OurName(theirs)));
    const Verdict& numbers = run.numbers.at(OurName(theirs));
    const Proof& proof = run.proof.proofs.at(OurName(theirs));
    const std::string verdict = entry.at("verdict");
    if (verdict == "NO_STATEMENT") {
      ExpectLost(numbers, proof);
      continue;
    }
    const bool right = verdict == "RIGHT";
    for (const Outcome outcome : {numbers.outcome, proof.outcome})
      EXPECT_EQ(outcome, right ? Outcome::kRight : Outcome::kWrong);
    if (right) continue;
    EXPECT_EQ(verdict, Name(numbers.mechanism));
    EXPECT_EQ(verdict, Name(proof.mechanism));
  }
}

INSTANTIATE_TEST_SUITE_P(
    LatentAttention, RealProgram,
    ::testing::Values(Pair{"mla/rotary_key_unsummed", "mla-te-sp-off-bug"},
                      Pair{"mla/local_spec", "mla-q-layernorm-sp-off-bug"},
                      Pair{"mla/replicated_down_projections", "mla-te-sp-on-0.19-right"},
                      Pair{"mla/down_projections_counted_tp_times", "mla-te-sp-on-0.16-norm-bug"}),
    [](const auto& info) {
      return absl::StrReplaceAll(info.param.trace, {{"-", "_"}, {".", "_"}});
    });

}  // namespace
}  // namespace sumonce

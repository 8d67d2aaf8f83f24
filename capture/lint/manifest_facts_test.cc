// Facts of a manifest that change what the finalizer does: the experts' groups, switches that are
// missing or denied, marks that leave a gradient out of the norm. Captured manifests, edited.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "capture/lint/lint.h"
#include "capture/lint/scenario_text.h"

namespace sumonce::lint {
namespace {

using capture::Manifest;
using ::testing::HasSubstr;

constexpr char kNorm[] = "decoder.final_layernorm.weight";
constexpr char kShard[] = "decoder.layers.0.mlp.linear_fc2.weight";

std::vector<Manifest> ManifestsOf(const std::string& name) {
  auto manifests = capture::LoadManifests(SUMONCE_TEST_DATA "/captures/" + name);
  EXPECT_TRUE(manifests.ok()) << manifests.status();
  return *std::move(manifests);
}

Statements State(const std::vector<Manifest>& manifests) {
  auto statements = StateParameters(manifests, {});
  EXPECT_TRUE(statements.ok()) << statements.status();
  return *std::move(statements);
}

void Mark(std::vector<Manifest>& manifests, const std::string& param, const std::string& mark,
          bool value) {
  for (Manifest& manifest : manifests) manifest.params.at(param).marks[mark] = value;
}

// A captured router that is reduced over each half of the data-parallel ranks.
TEST(ExpertGroups, ARouterReducedOverThemIsFound) {
  const Statements statements = State(ManifestsOf("moe-ep2-dp4-router-expert-group-bug"));
  const ParamStatement& router = statements.params.at("decoder.layers.0.mlp.router.weight");
  EXPECT_EQ(router.proof.mechanism, Mechanism::kWrongGroup) << router.proof.reason;
  EXPECT_EQ(router.proof.axis, Axis::kEdp);
  ASSERT_TRUE(router.cure);
  EXPECT_THAT(router.cure->text, HasSubstr("set allreduce = True on the parameter"));
}

// Tp 2 and dp 2: a dense gradient that is reduced over the experts' groups.
struct ExpertCase {
  int ep, etp;
  std::vector<std::vector<int>> edp;
  const char* param;
  bool flag;  // sequence_parallel
  const char* verdict;
};

TEST(ExpertGroups, DenseGradientsOverThem) {
  const std::vector<std::vector<int>> all = {{0, 1, 2, 3}}, dp = {{0, 2}, {1, 3}},
                                      none = {{0}, {1}, {2}, {3}};
  const ExpertCase kCases[] = {
      {1, 1, all, kNorm, false, "RIGHT"},      // the group spans tp: its sum is there
      {1, 1, all, kNorm, true, "DOUBLE_SUM"},  // and once more by the flag
      {1, 1, all, kShard, false, "MIXED_SHARDS"},
      {2, 1, dp, kNorm, true, "RIGHT"},  // the group is dp
      {2, 1, dp, kShard, false, "RIGHT"},
      {4, 1, none, kNorm, true, "WRONG"},  // other data-parallel ranks' terms are missing
      {4, 1, none, kShard, false, "WRONG"}};
  for (const ExpertCase& one : kCases) {
    std::vector<Manifest> manifests = ManifestsOf("plain-dp2-tp2");
    Mark(manifests, one.param, "allreduce", false);
    Mark(manifests, one.param, "sequence_parallel", one.flag);
    for (Manifest& manifest : manifests) {
      manifest.mesh["ep"].size = one.ep;
      manifest.mesh["etp"].size = one.etp;
      manifest.groups["edp"] = one.edp;
    }
    const Proof proof = State(manifests).params.at(one.param).proof;
    const std::string mechanism(Name(proof.mechanism)), outcome(Name(proof.outcome));
    EXPECT_THAT((std::vector<std::string>{outcome, mechanism}), ::testing::Contains(one.verdict))
        << one.param << " ep " << one.ep << " flag " << one.flag << ": " << mechanism << ' '
        << proof.reason;
  }
}

// What shows in a scenario has its groups; a scenario has no ep.
TEST(ExpertGroups, InAScenario) {
  std::vector<Manifest> manifests = ManifestsOf("plain-dp2-tp2");
  Mark(manifests, kShard, "allreduce", false);
  for (const int ep : {1, 4}) {
    for (Manifest& manifest : manifests) {
      manifest.mesh["ep"].size = ep;
      manifest.mesh["etp"].size = 1;
      manifest.groups["edp"] = {{0, 1, 2, 3}};
      if (ep == 4) manifest.groups["edp"] = {{0}, {1}, {2}, {3}};
    }
    const Statements statements = State(manifests);
    const absl::StatusOr<std::string> text =
        ScenarioText(statements, FaultsOf(statements), "a manifest");
    EXPECT_EQ(text.ok(), ep == 1) << text.status();
    if (text.ok()) {
      EXPECT_THAT(*text, HasSubstr("mesh { tp: 2 dp: 2 etp: 1 }"));
      EXPECT_THAT(*text, HasSubstr("mark: ALLREDUCE"));
    } else {
      EXPECT_THAT(std::string(text.status().message()), HasSubstr("ep 4"));
    }
  }
}

// Groups that are not Megatron's order of ranks are not guessed.
TEST(ExpertGroups, OthersThanMegatronsAreNotJudged) {
  std::vector<Manifest> manifests = ManifestsOf("plain-dp2-tp2");
  Mark(manifests, kNorm, "allreduce", false);
  for (Manifest& manifest : manifests) manifest.groups["edp"] = {{0, 3}, {1, 2}};
  const ParamStatement norm = State(manifests).params.at(kNorm);
  EXPECT_EQ(norm.proof.outcome, Outcome::kNoStatement);
  EXPECT_THAT(norm.proof.reason, HasSubstr("groups.edp"));
}

// Whether activations are split over the sequence decides classes and rules: it is never assumed.
TEST(Switches, SequenceParallelismMustBeSaid) {
  std::vector<Manifest> manifests = ManifestsOf("plain-dp2-tp2");
  for (Manifest& manifest : manifests) manifest.config.erase("sequence_parallel");
  EXPECT_THAT(State(manifests).refused, HasSubstr("config.sequence_parallel is missing"));
  for (Manifest& manifest : manifests) manifest.config["sequence_parallel"] = false;
  EXPECT_THAT(State(manifests).refused,
              HasSubstr("config.sequence_parallel is false, and on decoder.layers.0"));
}

TEST(Switches, TheNameRuleMustBeSaid) {
  std::vector<Manifest> manifests = ManifestsOf("qk-layernorm-sp-off-right");
  for (Manifest& manifest : manifests) manifest.config.erase("qk_layernorm");
  const Statements statements = State(manifests);
  for (const auto& [name, statement] : statements.params) {
    const bool named =
        name.find("q_layernorm") != name.npos || name.find("k_layernorm") != name.npos;
    EXPECT_EQ(statement.proof.outcome, named ? Outcome::kNoStatement : Outcome::kRight) << name;
  }
}

// What is marked shared is in no rank's norm.
TEST(NormMarks, SharedLeavesAGradientOut) {
  std::vector<Manifest> manifests = ManifestsOf("plain-dp2-tp2");
  EXPECT_EQ(State(manifests).params.at(kNorm).norm_miscount, "");
  Mark(manifests, kNorm, "shared", true);
  EXPECT_THAT(State(manifests).params.at(kNorm).norm_miscount, HasSubstr("shared"));
}

}  // namespace
}  // namespace sumonce::lint

// The manifests of real runs (tests/data/captures), each with its right answer; a manifest has no
// gradients, so what only numbers show is not asked of it.
#include "capture/lint/lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "capture/folder.h"
#include "capture/lint/class_hints.h"

namespace sumonce::lint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::string Capture(const std::string& name) { return SUMONCE_TEST_DATA "/captures/" + name; }

std::vector<std::string> AllCaptures() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(SUMONCE_TEST_DATA "/captures")) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Expected {
  std::map<std::string, std::string> wrong;  // parameter -> mechanism
  std::map<std::string, std::set<std::string>> also;
  bool norm_miscount = false;
  bool right = false;
};

Expected ExpectedOf(const std::string& name) {
  std::ifstream file(Capture(name) + "/expected.json");
  const auto json = nlohmann::json::parse(file);
  Expected expected;
  expected.right = json.at("outcome") == "RIGHT";
  for (const auto& [param, answer] : json.at("parameters").items()) {
    if (answer.at("outcome") != "WRONG") continue;
    expected.wrong[param] = answer.at("mechanism");
    if (answer.contains("also_accepted")) {
      for (const auto& word : answer["also_accepted"]) expected.also[param].insert(word);
    }
  }
  const auto norm = json.find("grad_norm");
  if (norm != json.end() && norm->is_object() &&
      norm->value("mechanism", nlohmann::json()) != nullptr)
    expected.norm_miscount = norm->at("mechanism") == "NORM_MISCOUNT";
  return expected;
}

Statements StatementsOf(const std::string& name, const StateOptions& options = {}) {
  const auto manifests = capture::LoadManifests(Capture(name));
  EXPECT_TRUE(manifests.ok()) << manifests.status();
  auto statements = StateParameters(*manifests, options);
  EXPECT_TRUE(statements.ok()) << statements.status();
  return *std::move(statements);
}

std::map<std::string, std::string> WrongOf(const Statements& statements) {
  std::map<std::string, std::string> wrong;
  for (const auto& [name, statement] : statements.params) {
    if (statement.proof.outcome == Outcome::kWrong)
      wrong[name] = std::string(Name(statement.proof.mechanism));
  }
  return wrong;
}

class EveryCapture : public ::testing::TestWithParam<std::string> {};

// What is said is true, and what is wrong is never called right.
TEST_P(EveryCapture, IsStatedTruly) {
  const Expected expected = ExpectedOf(GetParam());
  const Statements statements = StatementsOf(GetParam());
  // One manifest, two runs: whether the norm holds terms or shares only numbers can tell.
  const bool shares = GetParam() == "full-sequence-replica-averaged-bug";
  for (const auto& [name, statement] : statements.params) {
    const auto wrong = expected.wrong.find(name);
    const std::string said(Name(statement.proof.mechanism));
    if (statement.proof.outcome == Outcome::kNoStatement) {
      EXPECT_NE(statement.proof.reason, "") << name;
    } else if (wrong == expected.wrong.end()) {
      EXPECT_EQ(statement.proof.outcome, Outcome::kRight) << name << " " << said;
    } else {
      EXPECT_EQ(statement.proof.outcome, Outcome::kWrong) << name << " is " << wrong->second;
      const auto also = expected.also.find(name);
      const bool accepted = also != expected.also.end() && also->second.contains(said);
      EXPECT_TRUE(said == wrong->second || accepted || shares) << name << " " << said;
    }
  }
  for (const auto& [name, mechanism] : expected.wrong)
    EXPECT_TRUE(statements.params.contains(name)) << name;
}

TEST_P(EveryCapture, RightOnesHaveNoFinding) {
  const Expected expected = ExpectedOf(GetParam());
  const auto result = Lint(Capture(GetParam()), {});
  ASSERT_TRUE(result.ok()) << result.status();
  bool norm = false;
  for (const Finding& finding : result->findings) {
    norm = norm || finding.verdict.mechanism == Mechanism::kNormMiscount;
    if (finding.verdict.mechanism == Mechanism::kNormMiscount) continue;
    EXPECT_FALSE(expected.right) << finding.verdict.param;
    // A cure that is named was tried; where none is, the evidence says so.
    if (finding.cure) EXPECT_TRUE(finding.cure->tried && finding.cure->right_in_proof);
    EXPECT_THAT(finding.verdict.evidence, Not(IsEmpty()));
  }
  if (expected.right) {
    EXPECT_THAT(result->findings, IsEmpty());
    EXPECT_NE(result->outcome, RunOutcome::kFail);
  }
  // A group fault of the experts moves them to another norm group, which is not modelled.
  if (norm) EXPECT_TRUE(expected.norm_miscount) << GetParam();
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Lint, EveryCapture, ::testing::ValuesIn(AllCaptures()), TestName);

TEST(LintFounding, FindsBothCasesBeforeTheFirstStep) {
  for (const char* name : {"lora-replica-bug", "lora-replica-warm-bug"}) {
    const auto wrong = WrongOf(StatementsOf(name));
    EXPECT_EQ(wrong, ExpectedOf(name).wrong) << name;
    EXPECT_EQ(wrong.size(), 8u);
  }
  EXPECT_EQ(WrongOf(StatementsOf("gdn-gamma-tp2-bug")), ExpectedOf("gdn-gamma-tp2-bug").wrong);
  EXPECT_EQ(WrongOf(StatementsOf("gdn-gather-lora-tp2-bug")),
            ExpectedOf("gdn-gather-lora-tp2-bug").wrong);
}

TEST(LintFounding, TheirCuredTwinsAreRightAndNotSilent) {
  for (const char* name : {"lora-replica-fixed", "lora-replica-warm-fixed",
                           "gdn-gamma-tp2-flag-off", "gdn-gather-lora-tp2-flag-off"}) {
    for (const auto& [param, statement] : StatementsOf(name).params)
      EXPECT_EQ(statement.proof.outcome, Outcome::kRight) << name << " " << param;
  }
}

// Everything that the marks, the version and the modules decide is found, with its mechanism.
TEST(LintFounding, FindsTheOtherFaultsOfMarksAndVersions) {
  for (const char* name :
       {"averaged-final-norm-bug", "averaged-sharded-bug", "lora-replica-averaged-bug",
        "norm-flag-missing-bug", "qk-layernorm-config-off-bug", "stray-flag-sp-off-0.12-bug",
        "gdn-out-norm-sp-off-tp2-bug"}) {
    EXPECT_EQ(WrongOf(StatementsOf(name)), ExpectedOf(name).wrong) << name;
  }
}

TEST(LintFounding, CuresAreInTheFrameworksWords) {
  const auto gamma = Lint(Capture("gdn-gamma-tp2-bug"), {});
  ASSERT_EQ(gamma->findings.size(), 1u);
  ASSERT_TRUE(gamma->findings[0].cure.has_value());
  EXPECT_EQ(gamma->findings[0].cure->text,
            "set sequence_parallel = False on the parameter "
            "decoder.layers.0.self_attention.in_proj.layer_norm_weight of "
            "megatron.core.extensions.transformer_engine.TELayerNormColumnParallelLinear");
  const auto lora = Lint(Capture("lora-replica-bug"), {});
  ASSERT_EQ(lora->findings.size(), 8u);
  EXPECT_THAT(lora->findings[0].cure->text,
              HasSubstr("set sequence_parallel = True on the parameter "
                        "decoder.layers.0.self_attention.linear_proj.lora_B.default.weight"));
  // With sequence parallelism off no mark sums out_norm.
  const auto norm = Lint(Capture("gdn-out-norm-sp-off-tp2-bug"), {});
  ASSERT_EQ(norm->findings.size(), 1u);
  EXPECT_FALSE(norm->findings[0].cure.has_value());
  const auto qk = Lint(Capture("qk-layernorm-config-off-bug"), {});
  EXPECT_THAT(qk->findings[0].cure->text, HasSubstr("qk_layernorm = True in the configuration"));
}

TEST(LintNorm, FindsCopiesThatCountTpTimes) {
  for (const char* name : {"norm-replica-counted-tp-times-bug", "lora-te-linear-norm-tp-times"}) {
    const auto result = Lint(Capture(name), {});
    ASSERT_FALSE(result->findings.empty()) << name;
    for (const Finding& finding : result->findings) {
      EXPECT_EQ(finding.verdict.mechanism, Mechanism::kNormMiscount);
      EXPECT_EQ(finding.verdict.coefficient, "tp");
    }
  }
}

// Experts, pipelines, context parallelism and plain PyTorch are named, never right.
TEST(LintUnknown, WhatIsNotModelledIsNamed) {
  const Statements experts = StatementsOf("moe-tp2-ep2-etp1-right");
  int unsaid = 0;
  for (const auto& [name, statement] : experts.params) {
    const bool expert = name.find(".experts.") != std::string::npos;
    EXPECT_EQ(statement.proof.outcome == Outcome::kNoStatement, expert) << name;
    unsaid += expert;
    if (expert) EXPECT_THAT(statement.proof.reason, HasSubstr("MoELayer (mixture of experts)"));
  }
  EXPECT_GT(unsaid, 0);
  for (const auto& [name, reason] :
       {std::pair{"tied-pp2-right", "pipeline parallelism is not modelled"},
        std::pair{"gdn-gather-cp2-tp2-flag-off", "context parallelism is not modelled"},
        std::pair{"ddp-never-synced-bug", "which is not modelled"},
        std::pair{"dtensor-tp2-right", "framework.megatron-core is missing"}}) {
    const auto result = Lint(Capture(name), {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->outcome, RunOutcome::kSkip) << name;
    EXPECT_THAT(result->skip_reason, HasSubstr(reason)) << name;
    EXPECT_EQ(Lint(Capture(name), {.state = {}, .strict = true})->outcome, RunOutcome::kFail);
  }
}

// A copy of the first step of a captured run, without some ranks.
class LintFolder : public ::testing::Test {
 protected:
  LintFolder() {
    std::string pattern = testing::TempDir() + "/lint_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~LintFolder() override { fs::remove_all(folder_); }

  void Take(const std::string& name, int rank) const {
    const std::string file = "/step-0001/rank-0000" + std::to_string(rank) + ".safetensors";
    fs::create_directories(folder_ + "/step-0001");
    fs::copy_file(Capture(name) + file, folder_ + file);
  }

  std::string folder_;
};

// A missing rank file is said, and so is one of another run; the others are judged.
TEST_F(LintFolder, SaysWhichRanksAreNotThere) {
  Take("lora-replica-bug", 0);
  Take("lora-replica-bug", 3);
  auto result = Lint(folder_, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, RunOutcome::kFail);
  EXPECT_THAT(result->failures,
              ElementsAre(AllOf(HasSubstr("step-0001"), HasSubstr("no file of rank 1, 2 of 4"))));
  EXPECT_FALSE(result->findings.empty());

  Take("lora-replica-bug", 2);
  Take("lora-replica-fixed", 1);
  result = Lint(folder_, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->failures,
              ElementsAre(AllOf(HasSubstr("rank-00001.safetensors: is of another run than rank 0"),
                                HasSubstr("case lora-replica-fixed"))));
  EXPECT_FALSE(result->findings.empty());
}

TEST_F(LintFolder, OneRanksFileByItselfLacksNothing) {
  Take("lora-replica-fixed", 2);
  const auto result = Lint(folder_ + "/step-0001/rank-00002.safetensors", {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, RunOutcome::kPass);
}

TEST_F(LintFolder, ADamagedFileIsNamedAndTheOthersAreJudged) {
  Take("lora-replica-bug", 0);
  Take("lora-replica-bug", 1);
  Take("lora-replica-bug", 2);
  std::ofstream(folder_ + "/step-0001/rank-00003.safetensors") << "no tensors";
  const auto result = Lint(folder_, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->failures, ElementsAre(HasSubstr("rank-00003.safetensors")));
  EXPECT_FALSE(result->findings.empty());
}

// As docs/LINT.md has it: nothing to say is status 77, a skip, and no fault.
TEST_F(LintFolder, WithoutATrainedParameterThereIsNothingToJudge) {
  const std::string path = folder_ + "/manifest.json";
  std::ofstream(path) << R"({"format": "sumonce-capture", "version": 1, "step": 1, "rank": 0,
      "world_size": 1, "mesh": {}, "params": {"w": {"shape": [1], "requires_grad": false}}})";
  const auto result = Lint(path, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, RunOutcome::kSkip);
  EXPECT_THAT(result->skip_reason, AllOf(HasSubstr("no trained parameter"), HasSubstr("1 frozen")));
}

// The manifest's own words, changed one at a time.
class LintChanged : public ::testing::Test {
 protected:
  explicit LintChanged() : manifests_(*capture::LoadManifests(Capture("lora-replica-fixed"))) {}

  Statements State() { return *StateParameters(manifests_, options_); }
  const ParamStatement& Of(const Statements& statements, const std::string& name) {
    return statements.params.at(name);
  }
  template <typename Change>
  void Everywhere(const Change& change) {
    for (capture::Manifest& manifest : manifests_) change(manifest);
  }

  std::vector<capture::Manifest> manifests_;
  StateOptions options_;
  const std::string kReplica = "decoder.layers.2.self_attention.linear_proj.lora_B.default.weight";
  const std::string kShard = "decoder.layers.2.self_attention.linear_qkv.lora_B.default.weight";
};

TEST_F(LintChanged, AMarkOfOneRankAloneIsAMismatch) {
  manifests_[3].params.at(kReplica).marks["sequence_parallel"] = false;
  const Statements statements = State();
  EXPECT_EQ(Of(statements, kReplica).proof.mechanism, Mechanism::kCollectiveMismatch);
  EXPECT_THAT(Of(statements, kReplica).proof.reason, HasSubstr("rank 0 otherwise than on rank 3"));
  EXPECT_EQ(WrongOf(statements).size(), 1u);
}

TEST_F(LintChanged, AMarkOnAShardMixes) {
  Everywhere([&](auto& manifest) { manifest.params.at(kShard).marks["sequence_parallel"] = true; });
  EXPECT_THAT(WrongOf(State()), UnorderedElementsAre(std::pair{kShard, "MIXED_SHARDS"}));
}

TEST_F(LintChanged, AnUnknownClassIsNamedAndTheRestStaysStated) {
  Everywhere([](auto& manifest) {
    manifest.modules.at("decoder.layers.1.self_attention").class_name = "mine.Attention";
  });
  const Statements statements = State();
  for (const auto& [name, statement] : statements.params) {
    const bool inside = name.starts_with("decoder.layers.1.self_attention.");
    EXPECT_EQ(statement.proof.outcome, inside ? Outcome::kNoStatement : Outcome::kRight) << name;
    if (inside) {
      EXPECT_THAT(statement.proof.reason, HasSubstr("mine.Attention is not known"));
    }
  }
  // Described by the user, it is known.
  options_.module_map.modules.push_back(
      {.class_name = "mine.*", .acts_as = ModuleKind::kSelfAttention});
  for (const auto& [name, statement] : State().params)
    EXPECT_EQ(statement.proof.outcome, Outcome::kRight) << name;
}

// Wherever it stands: left out with its parameters, or an assumption without.
TEST_F(LintChanged, UnknownModulesAtOtherPlacesAreNamedToo) {
  Everywhere([](auto& manifest) {
    manifest.modules["decoder.layers.1.gate"] = {.class_name = "mine.Gate", .attributes = {}};
    manifest.modules["decoder.layers.1.mlp.act"] = {.class_name = "mine.Act", .attributes = {}};
    manifest.params["decoder.layers.1.gate.weight"] = {.shape = {4}, .dtype = "float32"};
  });
  const Statements statements = State();
  EXPECT_EQ(Of(statements, "decoder.layers.1.gate.weight").proof.reason, "mine.Gate is not known");
  EXPECT_THAT(statements.map.assumptions,
              Contains("decoder.layers.*.mlp.act (mine.Act, not known) communicates nothing of its "
                       "own"));
  EXPECT_EQ(statements.map.unmodelled.size(), 1u);
  EXPECT_EQ(Of(statements, kReplica).proof.outcome, Outcome::kRight);
}

TEST_F(LintChanged, AttributesThatChangeTheCommunicationAreNotOurs) {
  for (const auto& [name, value] :
       {std::pair<std::string, capture::Scalar>{"sequence_parallel", false},
        std::pair<std::string, capture::Scalar>{"parallel_mode", std::monostate()},
        std::pair<std::string, capture::Scalar>{"tp_size", int64_t{1}}}) {
    manifests_ = *capture::LoadManifests(Capture("lora-replica-fixed"));
    Everywhere([&, &name = name, &value = value](auto& manifest) {
      manifest.modules.at("decoder.layers.2.self_attention.linear_proj.base_layer")
          .attributes[name] = value;
    });
    const Statements statements = State();
    EXPECT_EQ(Of(statements, kReplica).proof.outcome, Outcome::kNoStatement) << name;
    EXPECT_THAT(Of(statements, kReplica).proof.reason, HasSubstr(name));
  }
}

TEST_F(LintChanged, AStatedClassDecides) {
  options_.traced[kReplica] = GradClass::kComplete;  // then the mark sums it once more
  EXPECT_THAT(WrongOf(State()), UnorderedElementsAre(std::pair{kReplica, "DOUBLE_SUM"}));
  options_.traced.clear();
  options_.module_map.modules.push_back(
      {.path = "decoder.layers.2.self_attention.linear_proj",
       .params = {{.name = "lora_B.*", .grad_class = GradClass::kShard}}});
  const Statements statements = State();
  EXPECT_THAT(WrongOf(statements), UnorderedElementsAre(std::pair{kReplica, "MIXED_SHARDS"}));
  EXPECT_EQ(Of(statements, kReplica).source, "module map");
}

TEST_F(LintChanged, VersionsDecide) {
  const auto with = [&](const std::string& version) {
    Everywhere([&](auto& manifest) { manifest.framework["megatron-core"] = version; });
    return State();
  };
  EXPECT_THAT(with("0.11.0").refused, HasSubstr("older than the finalizers known here"));
  EXPECT_EQ(with("0.12.3").refused, "");
  const Statements newer = with("0.57.0");
  EXPECT_EQ(newer.refused, "");
  EXPECT_THAT(newer.map.assumptions, Contains(HasSubstr("megatron-core 0.57.0 finalizes as 0.19")));
  Everywhere([](auto& manifest) { manifest.framework.erase("megatron-core"); });
  EXPECT_THAT(State().refused, HasSubstr("megatron-core is missing"));
}

TEST_F(LintChanged, FewerKeyValueGroupsThanRanksAreNotOurs) {
  Everywhere([](auto& manifest) { manifest.config["num_query_groups"] = int64_t{2}; });
  EXPECT_THAT(Of(State(), kReplica).proof.reason, HasSubstr("num_query_groups is 2, fewer than"));
}

TEST_F(LintChanged, ClassesForTheAudit) {
  const auto classes = ClassesOf(State());
  EXPECT_EQ(classes.at(kReplica), GradClass::kPartial);
  EXPECT_EQ(classes.at(kShard), GradClass::kShard);
  EXPECT_EQ(ClassesOf(StatementsOf("gdn-gamma-tp2-bug"))
                .at("decoder.layers.0.self_attention.in_proj.layer_norm_weight"),
            GradClass::kComplete);
}

// The rotary key that nobody sums: one finding, at the projection whose rows do not fit together,
// and what inherits it below; the norm that is summed by its name beside it.
TEST(LintLatentAttention, OneFindingWithTheRowsThatInheritIt) {
  const auto result = Lint(Capture("mla-te-sp-off-bug"), {});
  ASSERT_TRUE(result.ok()) << result.status();
  std::vector<const Finding*> gradients;
  for (const Finding& finding : result->findings) {
    if (finding.verdict.mechanism != Mechanism::kNormMiscount) gradients.push_back(&finding);
  }
  // The down projections of both layers are marked as if they were cut: three findings, and one
  // more as a consequence.
  EXPECT_EQ(result->findings.size() - gradients.size(), 3u);
  ASSERT_EQ(gradients.size(), 1u);
  const Verdict& mixed = gradients[0]->verdict;
  EXPECT_THAT(mixed.consequences, ElementsAre(Mechanism::kNormMiscount));
  EXPECT_EQ(mixed.param, "decoder.layers.1.self_attention.linear_kv_down_proj.weight");
  EXPECT_EQ(mixed.mechanism, Mechanism::kMixedUse);
  EXPECT_EQ(mixed.operation, "decoder.layers.1.self_attention.k_pos_emb/Copy#0");
  EXPECT_EQ(mixed.affected.size(), 13u);
  EXPECT_EQ(ExpectedOf("mla-te-sp-off-bug").wrong.size(), 14u);
  ASSERT_TRUE(gradients[0]->cure.has_value());
  EXPECT_THAT(gradients[0]->cure->text,
              HasSubstr("over tp in backward (copy_to_tensor_model_parallel_region), in every"));

  const auto wrong = WrongOf(StatementsOf("mla-q-layernorm-sp-off-bug"));
  EXPECT_EQ(wrong.at("decoder.layers.1.self_attention.q_layernorm.weight"), "DOUBLE_SUM");
  EXPECT_EQ(wrong.at("decoder.layers.0.self_attention.linear_proj.weight"), "UPSTREAM");
}

TEST(LintLatentAttention, TheAuditsHintsNameRootAndHeirs) {
  const capture::ClassHints hints = HintsOf(StatementsOf("mla-te-sp-off-bug"));
  const auto& root = hints.at("decoder.layers.1.self_attention.linear_kv_down_proj.weight");
  EXPECT_TRUE(root.upstream_root && root.mixed_use);
  const auto& heir = hints.at("embedding.word_embeddings.weight");
  EXPECT_FALSE(heir.upstream_root || heir.mixed_use);
  EXPECT_EQ(heir.upstream, root.upstream);
  const auto& right = hints.at("decoder.final_layernorm.weight");
  EXPECT_EQ(right.grad_class, GradClass::kComplete);
  EXPECT_EQ(right.upstream, "");
}

// mcore-bridge gathers the sequence from 1.6.2 on; before, in_proj gathers it itself.
TEST(LintGatherRegion, FollowsTheVersion) {
  auto manifests = *capture::LoadManifests(Capture("gdn-gamma-tp2-bug"));
  const auto wrong = [&](const std::string& version) {
    for (auto& manifest : manifests) manifest.framework["mcore-bridge"] = version;
    return WrongOf(*StateParameters(manifests, {}));
  };
  EXPECT_THAT(wrong("1.6.1"), IsEmpty());
  EXPECT_EQ(wrong("1.6.2").size(), 1u);
  for (auto& manifest : manifests) manifest.framework.erase("mcore-bridge");
  const auto statements = *StateParameters(manifests, {});
  EXPECT_THAT(statements.params.at("decoder.layers.0.self_attention.in_proj.layer_norm_weight")
                  .proof.reason,
              HasSubstr("framework.mcore-bridge is missing"));
}

}  // namespace
}  // namespace sumonce::lint

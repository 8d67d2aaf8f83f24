// What the audit does with evidence that the captured runs do not have: a probe, hints, files that
// say less, values that are no numbers.
#include "capture/audit/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "base/random.h"
#include "base/safetensors.h"
#include "capture/manifest.h"
#include "capture/testing/changed_capture.h"
#include "nlohmann/json.hpp"

namespace sumonce::capture {
namespace {

namespace fs = std::filesystem;
using Capture = ChangedCapture;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kGamma[] = "decoder.layers.0.self_attention.in_proj.layer_norm_weight";
constexpr char kReplica[] = "decoder.layers.1.self_attention.linear_proj.lora_B.default.weight";
constexpr char kUnseen[] = "decoder.layers.1.self_attention.linear_qkv.lora_A.default.weight";
constexpr char kFinalNorm[] = "decoder.final_layernorm.weight";

// The class from elsewhere settles what equal contributions leave open.
TEST(AuditHints, DecideBetweenEqualClasses) {
  const Capture capture("gdn-gamma-tp2-bug");
  EXPECT_THAT(capture.VerdictOf(kGamma).possible, ElementsAre("DOUBLE_SUM", "RIGHT"));
  ClassHints hints = {{kGamma, {.grad_class = GradClass::kComplete, .source = "map"}}};
  EXPECT_EQ(capture.VerdictOf(kGamma, {.hints = &hints}).mechanism, Mechanism::kDoubleSum);
  hints[kGamma].grad_class = GradClass::kEqualShare;
  EXPECT_EQ(capture.VerdictOf(kGamma, {.hints = &hints}).outcome, Outcome::kRight);
  // Equal contributions are no terms: such a hint is overruled.
  hints[kGamma].grad_class = GradClass::kPartial;
  const Verdict overruled = capture.VerdictOf(kGamma, {.hints = &hints});
  EXPECT_EQ(overruled.outcome, Outcome::kNoStatement);
  EXPECT_THAT(overruled.evidence, testing::Contains(HasSubstr("overruled")));
}

TEST(AuditHints, CompleteIsOverruledByDifferentContributions) {
  const Capture capture("averaged-final-norm-bug");
  const ClassHints hints = {{kFinalNorm, {.grad_class = GradClass::kComplete, .source = "map"}}};
  EXPECT_EQ(capture.VerdictOf(kFinalNorm, {.hints = &hints}).mechanism, Mechanism::kAveraged);
}

// Adds what a hook's probe writes: random integers in, and out what `sum` says of each parameter.
void AddProbe(Capture& capture, bool sum_replicas) {
  const json layout = json::parse(capture.ranks[0].metadata.at("layout"));
  const RandomStream random(7, "probe");
  uint64_t index = 0;
  std::vector<std::string> params;
  for (const auto& [name, tensor] : capture.ranks[0].tensors) {
    if (name.starts_with("finalized/")) params.push_back(name.substr(10));
  }
  for (const std::string& param : params) {
    std::vector<double> sum(capture.Values(0, "finalized/" + param).size());
    for (RankFileText& rank : capture.ranks) {
      TensorToWrite in = rank.tensors.at("finalized/" + param);
      for (size_t i = 0; i < in.values.size(); ++i) {
        in.values[i] = std::round(100 * random.Normal(index++));
        sum[i] += in.values[i];
      }
      rank.tensors["probe_contribution/" + param] = in;
      rank.tensors["probe_finalized/" + param] = in;
    }
    if (!sum_replicas || layout.contains(param)) continue;
    for (RankFileText& rank : capture.ranks) rank.tensors["probe_finalized/" + param].values = sum;
  }
}

// At the first step of LoRA the gradient of lora_A is zero: the probe says what the finalizer does,
// the class is still open.
TEST(AuditProbe, SpeaksWhereGradientsAreZero) {
  for (const bool sums : {false, true}) {
    Capture capture("lora-replica-bug");
    EXPECT_EQ(capture.VerdictOf(kUnseen).outcome, Outcome::kNoEvidence);
    AddProbe(capture, sums);
    const Verdict probed = capture.VerdictOf(kUnseen);
    EXPECT_EQ(probed.outcome, Outcome::kNoStatement);
    const ClassHints hints = {{kUnseen, {.grad_class = GradClass::kPartial, .source = "map"}}};
    const Verdict known = capture.VerdictOf(kUnseen, {.hints = &hints});
    EXPECT_EQ(known.outcome, sums ? Outcome::kRight : Outcome::kWrong);
    if (!sums) EXPECT_EQ(known.mechanism, Mechanism::kMissingSum);
  }
}

TEST(AuditProbe, IsEnoughByItself) {
  Capture capture("lora-replica-bug");
  AddProbe(capture, false);
  for (RankFileText& rank : capture.ranks) {
    std::erase_if(rank.tensors, [](const auto& entry) {
      return entry.first.starts_with("finalized") || entry.first.starts_with("contribution");
    });
  }
  const Verdict alone = capture.VerdictOf(kReplica);
  EXPECT_THAT(alone.possible, ElementsAre("MISSING_SUM", "RIGHT", "UNSUMMED_SHARE"));
  const ClassHints hints = {{kReplica, {.grad_class = GradClass::kPartial, .source = "map"}}};
  EXPECT_EQ(capture.VerdictOf(kReplica, {.hints = &hints}).mechanism, Mechanism::kMissingSum);
}

// Hooks do not know how parameters are cut: weights tell.
TEST(AuditLayout, WeightsTellReplicasFromShards) {
  Capture capture("lora-replica-warm-bug");
  capture.Erase("layout");
  EXPECT_EQ(capture.VerdictOf(kReplica).mechanism, Mechanism::kMissingSum);
  EXPECT_EQ(
      capture.VerdictOf("decoder.layers.1.self_attention.linear_qkv.lora_B.default.weight").outcome,
      Outcome::kRight);
}

// A norm that starts at one on all ranks could be cut or copied: nothing is said against it.
TEST(AuditLayout, ConstantWeightsTellNothing) {
  Capture capture("averaged-final-norm-bug");
  capture.Erase("layout");
  for (size_t rank = 0; rank < 2; ++rank) {
    for (double& value : capture.Values(rank, std::string("weight/") + kFinalNorm)) value = 1;
  }
  const Verdict verdict = capture.VerdictOf(kFinalNorm);
  EXPECT_EQ(verdict.outcome, Outcome::kWrong);  // an average is right for neither
  EXPECT_THAT(verdict.possible, ElementsAre("AVERAGED", "MIXED_SHARDS"));
}

// The wrapper's factor is what most parameters agree on, where the file does not say it.
TEST(AuditKappa, IsFoundByMajority) {
  Capture capture("plain-dp2-tp2");
  capture.Erase("ddp");
  const Audit audit = capture.TryAudit().value();
  for (const AuditedParam& param : audit.params)
    EXPECT_EQ(param.verdict.outcome, Outcome::kRight) << param.name;
  EXPECT_THAT(audit.conditions, testing::Contains(HasSubstr("each contribution counts 0.5 times")));
}

TEST(AuditValues, WhatIsNotFiniteIsNamed) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Capture capture("averaged-final-norm-bug");
    capture.Values(1, "contribution/output_layer.weight")[37] = bad;
    const Verdict verdict = capture.VerdictOf("output_layer.weight");
    EXPECT_EQ(verdict.mechanism, Mechanism::kNotFinite);
    EXPECT_THAT(verdict.evidence, testing::Contains(HasSubstr("contribution on rank 1 is")));
    EXPECT_THAT(verdict.evidence, testing::Contains(HasSubstr("at element [1, 5]")));
  }
}

TEST(AuditRanks, ShapesThatDifferAreTold) {
  Capture capture("averaged-final-norm-bug");
  for (const char* kind : {"contribution/", "finalized/", "weight/"}) {
    TensorToWrite& tensor = capture.ranks[1].tensors.at(std::string(kind) + kFinalNorm);
    tensor.shape = {16, 2};
  }
  const Verdict verdict = capture.VerdictOf(kFinalNorm);
  EXPECT_EQ(verdict.outcome, Outcome::kNoStatement);
  EXPECT_THAT(verdict.evidence, testing::Contains(HasSubstr("[32] on rank 0, [16, 2] on rank 1")));
}

TEST(AuditRanks, AParameterThatOneRankLacksIsTold) {
  Capture capture("norm-flag-missing-bug");
  for (const char* kind : {"contribution/", "finalized/", "weight/"}) {
    capture.ranks[1].tensors.erase(std::string(kind) +
                                   "decoder.layers.1.mlp.linear_fc1.layer_norm_weight");
  }
  const Verdict verdict = capture.VerdictOf("decoder.layers.1.mlp.linear_fc1.layer_norm_weight");
  EXPECT_EQ(verdict.outcome, Outcome::kNoStatement);
  EXPECT_THAT(verdict.evidence, testing::Contains(HasSubstr("rank 1 should hold it by the mesh")));
}

// Shards that changed places between ranks: the right numbers, on the wrong rank.
TEST(AuditRanks, ShardsOfOtherRanksAreTold) {
  Capture capture("averaged-complete-right");
  const std::string param = "decoder.layers.1.mlp.linear_fc2.weight";
  std::swap(capture.Values(0, "finalized/" + param), capture.Values(1, "finalized/" + param));
  EXPECT_EQ(capture.VerdictOf(param).mechanism, Mechanism::kWrongShard);
}

// Ranks of other runs, steps or meshes are left out, by name.
TEST(AuditRanks, ContradictionsAreFaults) {
  const std::pair<const char*, const char*> kChanges[] = {
      {"step", "2"},
      {"world_size", "4"},
      {"mesh", R"({"tp": {"size": 1, "coordinate": 0}, "dp": {"size": 2, "coordinate": 1}})"},
      {"mesh", R"({"tp": {"size": 2, "coordinate": 0}})"},
      {"rank", "0"},
      {"params", "no json"}};
  for (const auto& [key, value] : kChanges) {
    Capture capture("averaged-final-norm-bug");
    capture.ranks[1].metadata[key] = value;
    const absl::StatusOr<Audit> audit = capture.TryAudit();
    ASSERT_TRUE(audit.ok()) << audit.status();
    ASSERT_THAT(audit->faults, testing::SizeIs(1)) << key;
    EXPECT_THAT(audit->faults[0], HasSubstr("rank-1.safetensors")) << key;
  }
}

// Same mesh, same names, another run: named with what differs, also where it is the first rank; the
// others are judged as if its file were not there.
TEST(AuditRanks, ARankOfAnotherRunIsNamed) {
  const std::pair<const char*, const char*> kChanges[] = {
      {"config", R"({"sequence_parallel": false})"},
      {"framework", R"({"megatron-core": "0.11.0"})"},
      {"ddp", R"({"gradient_scaling_factor": 0.125})"},
      {"optimizer", R"({"class": "mine.Optimizer"})"},
      {"clip_grad", "0.25"},
      {"case", "another"},
      {"run", "another"}};
  for (const auto& [key, value] : kChanges) {
    for (const int rank : {0, 3}) {
      Capture capture("plain-dp2-tp2");
      capture.ranks[rank].metadata[key] = value;
      const absl::StatusOr<Audit> audit = capture.TryAudit();
      ASSERT_TRUE(audit.ok()) << audit.status();
      ASSERT_THAT(audit->faults, testing::SizeIs(1)) << key;
      EXPECT_THAT(audit->faults[0],
                  testing::AllOf(HasSubstr("rank-" + std::to_string(rank) + ".safetensors"),
                                 HasSubstr("is of another run than rank " +
                                           std::to_string(rank == 0 ? 1 : 0) + ": "),
                                 HasSubstr(key)));
      for (const AuditedParam& param : audit->params)
        EXPECT_NE(param.verdict.outcome, Outcome::kWrong) << key << ' ' << param.name;
    }
  }
}

// Steps of two runs in one folder: the second is named and left out.
TEST(AuditRanks, AStepOfAnotherRunIsNamed) {
  std::string pattern = testing::TempDir() + "/audit_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  const std::string captures = SUMONCE_TEST_DATA "/captures/";
  fs::copy(captures + "lora-replica-fixed/step-0001", folder + "/step-0001");
  fs::copy(captures + "lora-replica-bug/step-0002", folder + "/step-0002");
  const absl::StatusOr<Audit> audit = AuditCapture(folder, {});
  fs::remove_all(folder);
  ASSERT_TRUE(audit.ok()) << audit.status();
  ASSERT_THAT(audit->faults, testing::SizeIs(1));
  EXPECT_THAT(audit->faults[0],
              testing::AllOf(HasSubstr("step-0002: is of another run than " + folder),
                             HasSubstr("case lora-replica-bug, not lora-replica-fixed")));
  EXPECT_THAT(audit->steps, testing::ElementsAre(1));
}

// The names of two nodes' folders, where the run itself is named.
TEST(AuditRanks, FoldersOfOneRunMayHaveNames) {
  Capture capture("plain-dp2-tp2");
  for (RankFileText& rank : capture.ranks) rank.metadata["run"] = "job 7";
  capture.ranks[1].metadata["case"] = "captures-of-node-1";
  EXPECT_THAT(capture.TryAudit()->faults, testing::IsEmpty());
}

// What only a file has that is left out is no parameter of the step.
TEST(AuditRanks, ParametersOfAnotherRunAreNotJudged) {
  Capture capture("plain-dp2-tp2");
  capture.ranks[2].metadata["case"] = "another";
  capture.ranks[2].tensors["finalized/adapter"] = capture.ranks[2].tensors.begin()->second;
  const absl::StatusOr<Audit> audit = capture.TryAudit();
  ASSERT_TRUE(audit.ok()) << audit.status();
  for (const AuditedParam& param : audit->params) EXPECT_NE(param.name, "adapter");
}

TEST(AuditRanks, NothingUsableIsAnError) {
  Capture capture("averaged-final-norm-bug");
  for (RankFileText& rank : capture.ranks) rank.metadata["version"] = "9";
  EXPECT_EQ(capture.TryAudit().status().code(), absl::StatusCode::kInvalidArgument);
  Capture manifest("averaged-final-norm-bug");
  for (RankFileText& rank : manifest.ranks) rank.tensors.clear();
  EXPECT_THAT(std::string(manifest.TryAudit().status().message()),
              HasSubstr("a manifest alone is for sumonce lint"));
}

}  // namespace
}  // namespace sumonce::capture

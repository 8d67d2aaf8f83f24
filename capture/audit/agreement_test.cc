// What an audit must not let pass: factors near one, single elements, files that do not fit
// together, elements that nobody owns, steps that hold less.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "capture/testing/changed_capture.h"
#include "nlohmann/json.hpp"

namespace sumonce::capture {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kReplicaB[] = "decoder.layers.1.self_attention.linear_proj.lora_B.default.weight";
constexpr char kLastNorm[] = "decoder.final_layernorm.weight";

// With the per-token loss a file without the count says as little.
TEST(AuditKappa, IsFoundWithoutTheTokenCount) {
  ChangedCapture capture("plain-dp2-tp2-per-token");
  for (RankFileText& rank : capture.ranks) rank.metadata["tokens"] = "{}";
  const Audit audit = capture.TryAudit().value();
  for (const AuditedParam& param : audit.params)
    EXPECT_EQ(param.verdict.outcome, Outcome::kRight) << param.name;
  EXPECT_THAT(audit.conditions, testing::Contains(HasSubstr("tokens.global")));
}

// The first parameter that is asked is off by less than others could miss: it does not stand for
// them.
TEST(AuditKappa, IsNotThatOfOneThatIsNearlyRight) {
  ChangedCapture capture("plain-dp2-tp2");
  capture.Erase("ddp");
  for (size_t rank = 0; rank < capture.ranks.size(); ++rank) capture.Scale(rank, kLastNorm, 1.0005);
  const Audit audit = capture.TryAudit().value();
  for (const AuditedParam& param : audit.params) {
    EXPECT_EQ(param.verdict.outcome, param.name == kLastNorm ? Outcome::kWrong : Outcome::kRight)
        << param.name;
  }
}

// A divisor that counts one token in two thousand too few is no rounding.
TEST(AuditScale, IsRightToRoundingsOnly) {
  for (const double factor : {1.0005, 1.00001, 0.9999}) {
    ChangedCapture capture("plain-dp2-tp2-per-token");
    for (size_t rank = 0; rank < capture.ranks.size(); ++rank)
      capture.Scale(rank, kLastNorm, factor);
    const Verdict verdict = capture.VerdictOf(kLastNorm);
    EXPECT_EQ(verdict.mechanism, Mechanism::kWrongScale) << factor;
    EXPECT_NEAR(std::stod(verdict.coefficient), factor, 2e-6);
  }
}

// One factor on float64 gradients of very many elements: the factor is as exact as they are.
TEST(AuditScale, IsFoundInLargeFloat64Gradients) {
  ChangedCapture capture("plain-dp2-tp2");
  capture.Make("large", 300000, DType::kFloat64);
  for (size_t rank = 0; rank < capture.ranks.size(); ++rank) capture.Scale(rank, "large", 24);
  const Verdict verdict = capture.VerdictOf("large");
  EXPECT_EQ(verdict.mechanism, Mechanism::kWrongScale);
  EXPECT_EQ(verdict.coefficient, "24");
}

// One element among millions, between those that a sample holds.
TEST(AuditScale, HoldsOfEveryElement) {
  ChangedCapture capture("plain-dp2-tp2");
  capture.Make("large", 3 << 20, DType::kFloat32);
  EXPECT_EQ(capture.VerdictOf("large").outcome, Outcome::kRight);
  for (size_t rank = 0; rank < capture.ranks.size(); ++rank)
    capture.Values(rank, "finalized/large")[9001] += 1;
  const Verdict verdict = capture.VerdictOf("large");
  EXPECT_EQ(verdict.outcome, Outcome::kWrong);
  EXPECT_THAT(verdict.evidence, testing::Contains(HasSubstr("4 of 12582912 elements")));
}

// A tensor that one rank's file lacks is a fault of the set, whatever can be said of the parameter.
TEST(AuditRanks, ATensorThatOneFileLacksIsAFault) {
  for (const char* kind : {"contribution/", "finalized/"}) {
    ChangedCapture capture("plain-dp2-tp2");
    capture.ranks[1].tensors.erase(std::string(kind) + "output_layer.weight");
    const Audit audit = capture.TryAudit().value();
    ASSERT_THAT(audit.faults, testing::SizeIs(1)) << kind;
    EXPECT_THAT(audit.faults[0], testing::AllOf(HasSubstr("rank-1.safetensors: lacks "),
                                                HasSubstr(std::string(kind) + "output_layer")));
  }
}

TEST(AuditRanks, TokenCountsThatDifferAreAFault) {
  ChangedCapture capture("plain-dp2-tp2-per-token");
  capture.ranks[2].metadata["tokens"] = R"({"global": 203})";
  const Audit audit = capture.TryAudit().value();
  ASSERT_THAT(audit.faults, testing::SizeIs(1));
  EXPECT_THAT(audit.faults[0], HasSubstr("tokens.global is 203, and 196 on rank 0"));
}

TEST(AuditRanks, CutsThatDifferAreTold) {
  ChangedCapture capture("plain-dp2-tp2");
  capture.ranks[1].metadata["layout"] = "{}";
  EXPECT_FALSE(capture.TryAudit()->norms[0].miscounted);  // of what is left it says nothing
  const Verdict verdict = capture.VerdictOf("output_layer.weight");
  EXPECT_EQ(verdict.outcome, Outcome::kNoStatement);
  EXPECT_THAT(verdict.evidence, testing::Contains(HasSubstr("rank 1's file says another cut")));
}

// Each rank clips by the norm that it has.
TEST(AuditRanks, NormsThatDifferAreTold) {
  ChangedCapture capture("plain-dp2-tp2");
  EXPECT_EQ(capture.TryAudit()->norms[0].apart, "");
  capture.ranks[3].metadata["grad_norm"] = "7.5";
  EXPECT_THAT(capture.TryAudit()->norms[0].apart, HasSubstr("and 7.5 on rank 3"));
}

// Elements that no rank of the distributed optimizer owns are nobody's.
TEST(AuditOwned, EveryElementHasAnOwner) {
  const std::string param = "output_layer.weight";
  const std::pair<const char*, const char*> kGaps[] = {{"[0, 1000]", "[1000, 1024) of 1024"},
                                                       {"[8, 1024]", "[0, 8) of 1024"},
                                                       {"", "[0, 1024) of 1024"}};
  for (const auto& [range, gap] : kGaps) {
    ChangedCapture capture("plain-dp2-distributed-optimizer");
    for (RankFileText& rank : capture.ranks) {
      json owned = json::parse(rank.metadata.at("owned"));
      if (!owned.contains(param)) continue;
      owned.erase(param);
      if (*range != 0) owned[param] = json::parse(range);
      rank.metadata["owned"] = owned.dump();
    }
    const Verdict verdict = capture.VerdictOf(param);
    EXPECT_EQ(verdict.mechanism, Mechanism::kLostContribution);
    EXPECT_THAT(verdict.evidence, testing::Contains(HasSubstr(gap)));
  }
}

// A rank that does not say what it owns would own everything, its unreduced elements, too.
TEST(AuditOwned, IsSaidByAllRanksOrNone) {
  ChangedCapture capture("plain-dp2-distributed-optimizer");
  capture.ranks[1].metadata.erase("owned");
  const Audit audit = capture.TryAudit().value();
  ASSERT_THAT(audit.faults, testing::SizeIs(1));
  EXPECT_THAT(audit.faults[0], HasSubstr("rank-1.safetensors: does not say what it owns"));
  EXPECT_EQ(capture.VerdictOf("output_layer.weight").outcome, Outcome::kWrong);
}

// Without contributions the result alone is compared.
TEST(AuditAgainst, NeedsNoContributions) {
  ChangedCapture capture("plain-dp2-tp2");
  for (RankFileText& rank : capture.ranks) {
    std::erase_if(rank.tensors, [](const auto& e) { return e.first.starts_with("contribution"); });
  }
  const AuditOptions against{.against = SUMONCE_TEST_DATA "/captures/plain-dp2-tp2/reference"};
  EXPECT_EQ(capture.VerdictOf(kLastNorm).outcome, Outcome::kNoStatement);
  EXPECT_EQ(capture.VerdictOf(kLastNorm, against).outcome, Outcome::kRight);
  capture.Scale(2, kLastNorm, -1);
  EXPECT_EQ(capture.VerdictOf(kLastNorm, against).outcome, Outcome::kWrong);
  for (const int rank : {0, 1, 3}) capture.Scale(rank, kLastNorm, 2);
  capture.Scale(2, kLastNorm, -2);
  const Verdict doubled = capture.VerdictOf(kLastNorm, against);
  EXPECT_EQ(doubled.mechanism, Mechanism::kDoubleSum);
  EXPECT_THAT(doubled.possible, ElementsAre("DOUBLE_SUM", "WRONG_SCALE"));
}

// What the ranks' files show by themselves a reference does not hide: a norm sees neither a small
// factor nor one element.
TEST(AuditAgainst, HidesNothing) {
  const AuditOptions against{.against =
                                 SUMONCE_TEST_DATA "/captures/plain-dp2-tp2-per-token/reference"};
  ChangedCapture scaled("plain-dp2-tp2-per-token"), bent("plain-dp2-tp2-per-token");
  for (size_t rank = 0; rank < scaled.ranks.size(); ++rank) {
    scaled.Scale(rank, kLastNorm, 1.00005);
    bent.Values(rank, std::string("finalized/") + kLastNorm)[5] += 1e-4;
  }
  EXPECT_EQ(scaled.VerdictOf(kLastNorm, against).mechanism, Mechanism::kWrongScale);
  EXPECT_EQ(bent.VerdictOf(kLastNorm, against).outcome, Outcome::kWrong);
}

// A reference that is no number is none.
TEST(AuditAgainst, AReferenceThatIsNotFiniteIsNamed) {
  const ChangedCapture capture("plain-dp2-tp2");
  ChangedCapture reference("plain-dp2-tp2");
  for (RankFileText& rank : reference.ranks)
    rank.tensors.at(std::string("finalized/") + kLastNorm).values[3] = NAN;
  ASSERT_TRUE(reference.TryAudit().ok());
  const Audit audit = capture.TryAudit({.against = reference.folder()}).value();
  for (const AuditedParam& param : audit.params) {
    EXPECT_EQ(param.not_compared.empty(), param.name != kLastNorm) << param.name;
    EXPECT_EQ(param.verdict.outcome, Outcome::kRight);
  }
}

// One step that cannot be used does not take the others with it, and is named.
TEST(AuditSteps, OneThatIsUnusableIsNamed) {
  const ChangedCapture capture("plain-dp2-tp2");
  ASSERT_TRUE(capture.TryAudit().ok());
  fs::create_directories(capture.folder() + "/step-0002");
  std::ofstream(capture.folder() + "/step-0002/rank-0.safetensors") << "no safetensors";
  const absl::StatusOr<Audit> audit = AuditCapture(capture.folder(), {});
  ASSERT_TRUE(audit.ok()) << audit.status();
  EXPECT_THAT(audit->steps, ElementsAre(1));
  ASSERT_THAT(audit->faults, testing::SizeIs(1));
  EXPECT_THAT(audit->faults[0], HasSubstr("step-0002/rank-0.safetensors"));
}

// A parameter that only some steps hold was not captured as it should be.
TEST(AuditSteps, HoldTheSameParameters) {
  for (const char* less : {"step-0001", "step-0002"}) {
    std::string pattern = testing::TempDir() + "/audit_XXXXXX";
    const std::string folder = mkdtemp(pattern.data());
    const fs::path source = SUMONCE_TEST_DATA "/captures/lora-replica-fixed";
    for (const char* step : {"step-0001", "step-0002"})
      fs::copy(source / step, folder + "/" + step);
    for (const auto& entry : fs::directory_iterator(folder + "/" + less)) {
      const SafetensorsReader reader = SafetensorsReader::Open(entry.path()).value();
      std::map<std::string, TensorToWrite> tensors;
      for (const auto& [name, info] : reader.tensors()) {
        if (name.ends_with(kReplicaB)) continue;
        tensors[name] = {
            .dtype = info.dtype, .shape = info.shape, .values = reader.Read(name).value()};
      }
      ASSERT_TRUE(WriteSafetensors(entry.path(), tensors, reader.metadata(), true).ok());
    }
    const absl::StatusOr<Audit> audit = AuditCapture(folder, {});
    fs::remove_all(folder);
    ASSERT_TRUE(audit.ok()) << audit.status();
    ASSERT_THAT(audit->faults, testing::SizeIs(1)) << less;
    EXPECT_THAT(audit->faults[0], HasSubstr(kReplicaB));
  }
}

}  // namespace
}  // namespace sumonce::capture

// sumonce audit as its user meets it: the founding cases' dumps in; a page, JSON, exit status out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command_line.h"

namespace sumonce {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

struct Output {
  int status = -1;
  std::string out;
  std::string err;
};

std::string Captured(const std::string& name) {
  return std::string(SUMONCE_TEST_DATA "/captures/") + name;
}

Output RunAuditOf(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"sumonce", "audit"});
  std::ostringstream out, err;
  Io io{out, err};
  const Engine engine;
  const int status = RunCommandLine(arguments, io, engine);
  return {status, out.str(), err.str()};
}

TEST(AuditCommand, NamesTheFoundingCase) {
  const Output output = RunAuditOf({Captured("lora-replica-bug"), "--no-modules"});
  EXPECT_EQ(output.status, 1);
  EXPECT_THAT(output.out, HasSubstr("FAIL  " + Captured("lora-replica-bug") + "  tp=4"));
  // The table of the report: zero on all ranks but the last.
  EXPECT_THAT(output.out,
              ::testing::ContainsRegex("MISSING_SUM  decoder.layers.\\*.self_attention.linear_proj."
                                       "lora_B.default.weight \\(4\\) +0 +0 +0 +4.168"));
  EXPECT_THAT(output.out, HasSubstr("MISSING_SUM over tp, coefficient none: per rank: each rank "
                                    "holds its own share, and nobody adds them up"));
  EXPECT_THAT(output.out, HasSubstr("leads to REPLICA_DRIFT"));
  EXPECT_THAT(output.out, HasSubstr("reproduce: sumonce audit "));
  EXPECT_THAT(output.out,
              EndsWith("sumonce: 8 parameters right, 8 wrong, 0 undecided, 0 without evidence\n"));
}

TEST(AuditCommand, WhatIsUndecidedFailsOnlyIfAsked) {
  const std::string dir = Captured("gdn-gamma-tp2-bug");
  const Output output = RunAuditOf({dir, "--no-modules"});
  EXPECT_EQ(output.status, 0) << output.out;
  EXPECT_THAT(output.out, HasSubstr("undecided, 1 parameter: DOUBLE_SUM or RIGHT; what would "
                                    "decide: the class of its gradient"));
  EXPECT_THAT(output.out, EndsWith("18 parameters right, 0 wrong, 1 undecided, 0 without "
                                   "evidence\n"));
  const Output strict = RunAuditOf({dir, "--no-modules", "--strict"});
  EXPECT_EQ(strict.status, 1);
  EXPECT_THAT(strict.out, HasSubstr("1 parameters are undecided"));
}

TEST(AuditCommand, AReferenceDecides) {
  const std::string dir = Captured("gdn-gamma-tp2-bug");
  const Output output = RunAuditOf({dir, "--no-modules", "--against", dir + "/reference"});
  EXPECT_EQ(output.status, 1);
  EXPECT_THAT(output.out, HasSubstr("DOUBLE_SUM over tp, coefficient tp"));
  EXPECT_THAT(output.out, HasSubstr("rank 1: 2 of the reference's norm"));
  EXPECT_THAT(output.out, HasSubstr("2 times the reference on every rank"));
  EXPECT_THAT(output.out, HasSubstr("12.7953 of the reference"));
}

TEST(AuditCommand, NormsAreCompared) {
  const Output output = RunAuditOf({Captured("norm-replica-counted-tp-times-bug"), "--no-modules"});
  EXPECT_EQ(output.status, 1);
  EXPECT_THAT(output.out, HasSubstr("NORM_MISCOUNT"));
  EXPECT_THAT(output.out,
              HasSubstr("gradient norm 6.62055 recorded, 6.62055 by the marks, 6.43672 with every "
                        "parameter counted once"));
  EXPECT_THAT(output.out, HasSubstr("final_layernorm.weight times 2"));
}

TEST(AuditCommand, JsonHoldsEverything) {
  const Output output =
      RunAuditOf({Captured("gdn-gamma-tp2-bug"), Captured("averaged-final-norm-bug"),
                  "--no-modules", "--format", "json"});
  EXPECT_EQ(output.status, 1);
  const nlohmann::json report = nlohmann::json::parse(output.out);
  const nlohmann::json& gamma = report["scenarios"][0];
  EXPECT_EQ(gamma["outcome"], "PASS");
  EXPECT_EQ(gamma["undecided"][0]["param"],
            "decoder.layers.0.self_attention.in_proj.layer_norm_weight");
  EXPECT_EQ(gamma["undecided"][0]["possible"], (nlohmann::json{"DOUBLE_SUM", "RIGHT"}));
  EXPECT_NE(gamma["undecided"][0]["decides"], "");
  const nlohmann::json& averaged = report["scenarios"][1];
  EXPECT_EQ(averaged["outcome"], "FAIL");
  EXPECT_EQ(averaged["findings"][0]["mechanism"], "AVERAGED");
  EXPECT_EQ(averaged["findings"][0]["coefficient"], "1/tp");
  EXPECT_EQ(averaged["params_wrong"], 1);
  EXPECT_THAT(output.err, HasSubstr("sumonce: 32 parameters right, 1 wrong, 1 undecided"));
}

TEST(AuditCommand, JunitNamesTheMechanism) {
  const Output output =
      RunAuditOf({Captured("averaged-final-norm-bug"), "--no-modules", "--format", "junit"});
  EXPECT_THAT(output.out, HasSubstr("type=\"AVERAGED\""));
}

TEST(AuditCommand, ExplainsOneParameter) {
  const std::string param = "decoder.final_layernorm.weight";
  const std::string dir = Captured("averaged-final-norm-bug");
  const Output output = RunAuditOf({dir, "--no-modules", "--explain", param});
  EXPECT_EQ(output.status, 0);
  EXPECT_THAT(output.out,
              AllOf(HasSubstr("step 1  [32] float32"), HasSubstr("rank 1: contributed norm"),
                    HasSubstr("equal weights, and the ranks contribute differently"),
                    HasSubstr("if its class is partial, action AVG: AVERAGED, coefficient 1/tp")));
  const Output other = RunAuditOf({dir, "--explain", "decoder.final_layernorm.weigt"});
  EXPECT_EQ(other.status, 4);
  EXPECT_THAT(other.err, HasSubstr("did you mean decoder.final_layernorm.weight?"));
}

TEST(AuditCommand, MistakesAreStatusFour) {
  EXPECT_THAT(RunAuditOf({"/nowhere"}).err, HasSubstr("/nowhere: no such folder"));
  EXPECT_EQ(RunAuditOf({"/nowhere"}).status, 4);
  EXPECT_EQ(RunAuditOf({}).status, 4);
  EXPECT_EQ(RunAuditOf({Captured("tied-pp2-right"), "--rtol", "2"}).status, 4);
  const std::string dir = Captured("tied-pp2-right");
  EXPECT_EQ(RunAuditOf({dir, dir, "--against", dir}).status, 4);
  EXPECT_EQ(RunAuditOf({dir, "--against", "/nowhere"}).status, 4);
}

// What was asked for is what the report is of, whatever the files call themselves.
TEST(AuditCommand, ReportsAreTitledByThePathGiven) {
  std::string pattern = ::testing::TempDir() + "/audit_command_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  std::filesystem::copy(Captured("plain-dp2-tp2"), folder,
                        std::filesystem::copy_options::recursive);
  const Output output = RunAuditOf({folder, Captured("tied-pp2-right") + "/"});
  EXPECT_THAT(output.out, HasSubstr("PASS  " + folder + " (plain-dp2-tp2)"));
  EXPECT_THAT(output.out, HasSubstr("PASS  " + Captured("tied-pp2-right") + "/  "));
  std::filesystem::remove_all(folder);
}

// Half of a run is audited for what it holds, and is never a pass.
TEST(AuditCommand, AMissingRankFails) {
  std::string pattern = ::testing::TempDir() + "/audit_command_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  std::filesystem::create_directories(folder + "/step-0001");
  std::filesystem::copy(Captured("plain-dp2-tp2") + "/step-0001/rank-00002.safetensors",
                        folder + "/step-0001/rank-00002.safetensors");
  const Output output = RunAuditOf({folder, "--no-modules"});
  EXPECT_EQ(output.status, 1);
  EXPECT_THAT(output.out, HasSubstr("no file of rank 0, 1, 3 of 4"));
  EXPECT_THAT(output.out, Not(HasSubstr(" wrong, 0 undecided")));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sumonce

// Two provers of one program: the abstract tape on the simulator's operations, and the trace prover
// on what a rank of the same scenario would run. They share the table of maps and the judgement,
// and nothing of forward, backward or memory.
#include "trace/record/record_step.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sim/scenario_reader.h"
#include "trace/prove_traces.h"
#include "trace/reasons.h"
#include "trace/record/write_traces.h"
#include "verify/prove.h"

namespace sumonce::trace {
namespace {

Scenario ReadShipped(const std::string& name) {
  const std::string path = absl::StrCat(SUMONCE_SOURCE_DIR, "/scenarios/", name, ".textproto");
  ReadResult read = ReadScenario(path, name, {});
  EXPECT_TRUE(read.ok()) << Format(read.mistakes.front());
  return read.scenario;
}

std::vector<std::string> ShippedNames() {
  std::vector<Mistake> mistakes;
  std::vector<std::string> names;
  for (const ScenarioFile& file :
       FindScenarios({absl::StrCat(SUMONCE_SOURCE_DIR, "/scenarios")}, mistakes))
    names.push_back(file.name);
  return names;
}

// What both say; where and why one makes no statement is its own.
std::string Statement(const Proof& proof) {
  if (proof.outcome == Outcome::kRight) return "RIGHT";
  if (proof.outcome == Outcome::kNoStatement) return "NO_STATEMENT";
  return absl::StrCat(ToAbsl(Name(proof.mechanism)), " ", proof.coefficient);
}

// Whether an edit acts on some ranks only: then the ranks run different programs.
bool TellsRanksApart(const Scenario& scenario) {
  for (const Edit& edit : scenario.defects) {
    const bool some = std::visit(
        [](const auto& kind) {
          if constexpr (requires { kind.ranks; }) return !kind.ranks.empty();
          return false;
        },
        edit.kind);
    if (some) return true;
  }
  return false;
}

// Whether the finalizer does not divide by the tokens: then the programs of one and of several
// ranks differ by a number, and nothing is claimed of either.
bool LeavesANumberOut(const Scenario& scenario) {
  return std::any_of(scenario.defects.begin(), scenario.defects.end(), [](const Edit& edit) {
    const auto* rule = std::get_if<RuleEdit>(&edit.kind);
    return rule && rule->how == RuleEdit::How::kDrop && rule->rule == "times_inverse_num_tokens";
  });
}

class ShippedScenario : public ::testing::TestWithParam<std::string> {};

// NO_STATEMENT of the traces where the scenario's proof says more: of ranks that run different
// programs nothing is claimed, and a number that the unsharded program does not have is refused.
TEST_P(ShippedScenario, ProversAgree) {
  const Scenario scenario = ReadShipped(GetParam());
  if (const std::string why = WhyNotRecorded(scenario); !why.empty()) {
    std::cerr << GetParam() << " is not recorded: " << why << '\n';
    return;
  }
  const Scenario recorded = AsRecorded(scenario);
  const ProofRun expected = Prove(recorded, recorded.defects);
  const auto set = RecordStep(recorded, recorded.defects);
  if (!set.ok() && TellsRanksApart(scenario)) {
    EXPECT_NE(expected.refused, "");
    std::cerr << GetParam() << " is not recorded: a rank's step fails: " << set.status() << '\n';
    return;
  }
  ASSERT_TRUE(set.ok()) << set.status();
  const TraceProof proof = ProveTraces(*set);
  EXPECT_EQ(proof.refused.empty(), !TellsRanksApart(scenario) && !LeavesANumberOut(scenario))
      << proof.refused;
  EXPECT_EQ(proof.proofs.size(), expected.proofs.size());
  int same = 0, refused = 0;
  for (const auto& [param, want] : expected.proofs) {
    ASSERT_TRUE(proof.proofs.contains(param)) << param;
    const Proof& got = proof.proofs.at(param);
    // A mixture of rows: the scenario's layers name the one weight that made it, a trace the
    // operation where it arises.
    const bool above =
        want.mechanism == Mechanism::kMixedUse && got.reason.starts_with("mixed use");
    const bool silent = !proof.refused.empty() || (above && got.outcome == Outcome::kNoStatement) ||
                        (got.reason.starts_with(kWholeNumber) && want.outcome == Outcome::kWrong);
    EXPECT_EQ(Statement(got), silent ? "NO_STATEMENT" : Statement(want))
        << param << "\n  traces: " << got.before << " -> " << got.after << " " << got.operation
        << ": " << got.reason << "\n  scenario: " << want.before << " -> " << want.after << " "
        << want.operation << ": " << want.reason;
    ++(silent ? refused : same);
  }
  std::cerr << GetParam() << ": " << same << " statements the same, " << refused
            << " refused by the traces alone " << proof.refused << '\n';
}

INSTANTIATE_TEST_SUITE_P(Scenarios, ShippedScenario, ::testing::ValuesIn(ShippedNames()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (!isalnum(c)) c = '_';
                           }
                           return name;
                         });

// What is written is what is read.
TEST(WriteTraces, ComesBackTheSame) {
  const Scenario recorded = AsRecorded(ReadShipped("lora/row_flag_missing"));
  const auto set = RecordStep(recorded, recorded.defects);
  ASSERT_TRUE(set.ok()) << set.status();
  const std::string dir = absl::StrCat(::testing::TempDir(), "/recorded_step");
  const absl::Status written = WriteTraces(*set, dir, true);
  ASSERT_TRUE(written.ok()) << written;
  const auto read = ReadTraces(dir);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ProgramText(read->ranks[1]), ProgramText(set->ranks[1]));
  EXPECT_EQ(ProgramText(*read->twice), ProgramText(*set->twice));
  const auto proofs = ProveTraces(*read).proofs;
  for (const auto& [param, proof] : ProveTraces(*set).proofs)
    EXPECT_EQ(Statement(proofs.at(param)), Statement(proof)) << param;
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sumonce::trace

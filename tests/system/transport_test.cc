// Calls that go wrong in the transport: every scenario of scenarios/transport under both executors
// and other schedules, and verdicts that name call, rank and occurrence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "tests/system/shipped.h"
#include "verify/run_once.h"
#include "verify/runner.h"

namespace sumonce {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Same verdicts, same bits: which call goes wrong does not depend on who runs when.
TEST(TransportFaults, SameUnderEveryExecutorAndSchedule) {
  int scenarios = 0;
  for (const ScenarioFile& file : testing::ShippedFiles()) {
    if (!absl::StartsWith(file.name, "transport/")) continue;
    ++scenarios;
    const Scenario scenario = testing::Shipped(file.name);
    std::string digest;
    for (const ExecutorOptions& executor :
         {ExecutorOptions{}, ExecutorOptions{.schedule = 7}, ExecutorOptions{.schedule = 8},
          ExecutorOptions{.kind = ExecutorKind::kThreads}}) {
      const auto results = RunScenario(scenario, {.executor = executor});
      for (const ScenarioResult& result : results) {
        EXPECT_EQ(result.outcome, RunOutcome::kPass)
            << result.name << ", " << Name(executor.kind) << " " << executor.schedule << ": "
            << absl::StrJoin(result.failures, "; ");
      }
      const bool ends =
          !results[0].findings.empty() && results[0].findings[0].verdict.param.empty();
      if (ends) continue;  // how far each rank came is the schedule's
      if (digest.empty()) digest = results[0].digest;
      EXPECT_EQ(results[0].digest, digest) << file.name << ", " << Name(executor.kind);
    }
  }
  EXPECT_GE(scenarios, 16);
}

std::string EvidenceOf(const std::string& name, const std::string& param) {
  const Scenario scenario = testing::Shipped(name);
  const RunOnce run = RunScenarioOnce(scenario, scenario.defects, {});
  EXPECT_THAT(run.disagreements, IsEmpty());
  const auto found = run.verdicts.find(param);
  if (found == run.verdicts.end()) return "no verdict on " + param;
  return absl::StrJoin(found->second.evidence, "\n");
}

TEST(TransportFaults, EvidenceNamesCallRankAndOccurrence) {
  constexpr char kQkvNorm[] = "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight";
  constexpr char kDpSum[] = "finalizer data_parallel/data_parallel_sum, call ";
  const struct {
    const char* scenario;
    std::string call;
    const char* what;
  } cases[] = {
      {"dropped_contribution",
       std::string(kDpSum) + "1 (step 1), over dp [0 1]: ", "rank 1's term is missing"},
      {"doubled_contribution",
       std::string(kDpSum) + "1 (step 1), over dp [0 1]: ", "rank 0's term is there twice"},
      {"stale_contribution", std::string(kDpSum) + "2 (step 2), over dp [0 1]: ",
       "rank 1's term is that of the step before"},
      {"flipped_bit", std::string(kDpSum) + "1 (step 1), over dp [0 1]: ",
       "rank 1's term has bit 54 of its element 5 flipped on the way"},
      {"swapped_buffer", std::string(kDpSum) + "1 (step 1), over dp [0 1]: ",
       "rank 1's term has other elements of the rank's own buffer at 16 of 16 places"},
      {"dropped_by_two_ranks", std::string(kDpSum) + "1 (step 1), over dp [0 1 2 3]: ",
       "rank 1's term is there 0 times, rank 3's term is there 0 times"},
      {"dropped_from_tensor_parallel_sum",
       "finalizer tensor_parallel/sequence_parallel_sum, call 1 (step 1), over tp [2 3]: ",
       "rank 3's term is missing"},
      {"wrong_group", kDpSum, "is to reduce over dp, and every rank got the reduction over tp"},
      {"dropped_activation", "first wrong at decoder.layers.0.self_attention.linear_proj/",
       "over tp [0 1 2 3]: rank 1's term is missing"},
      {"flipped_activation_bit", "first wrong at decoder.layers.0.mlp.linear_fc1/AllGather#0",
       "over tp [0 1 2 3]: rank 3's term has bit 54 of its element 5 flipped on the way"},
      {"stale_activation", "first wrong in microbatch 1 at decoder.layers.0.mlp.linear_fc1/",
       "its value is not the reference's"},
      {"doubled_backward",
       "first wrong at decoder.layers.0.mlp.linear_fc1/AllGather#0: the gradient",
       "over tp [0 1]: rank 0's term is there twice"},
  };
  for (const auto& [scenario, call, what] : cases) {
    EXPECT_THAT(EvidenceOf(std::string("transport/") + scenario, kQkvNorm),
                AllOf(HasSubstr(call), HasSubstr(what)))
        << scenario;
  }
}

// What the call does not reach is right and proved right; of the rest the proof claims nothing.
TEST(TransportFaults, TheProofIsSilentOnlyWhereTheCallReaches) {
  const Scenario scenario = testing::Shipped("transport/flipped_bit");
  const ProofRun proof = Prove(scenario, scenario.defects);
  for (const auto& [param, claim] : proof.proofs) {
    const bool reached = param == "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight";
    EXPECT_EQ(claim.outcome, reached ? Outcome::kNoStatement : Outcome::kRight) << param;
  }
  for (const char* name : {"transport/dropped_activation", "transport/killed_rank",
                           "transport/reordered_calls", "transport/dropped_contribution"}) {
    const Scenario all = testing::Shipped(name);
    for (const auto& [param, claim] : Prove(all, all.defects).proofs)
      EXPECT_EQ(claim.outcome, Outcome::kNoStatement) << name << " " << param;
  }
  const Scenario late = testing::Shipped("transport/late_rank");
  for (const auto& [param, claim] : Prove(late, late.defects).proofs)
    EXPECT_EQ(claim.outcome, Outcome::kRight) << param;
}

// A fault that finds no call fails the run: a harmless one would otherwise pass without acting.
TEST(TransportFaults, OneThatNeverActsFailsTheRun) {
  Scenario scenario = testing::Shipped("transport/late_rank");
  std::get<CommunicationEdit>(scenario.defects[0].kind).fault.occurrence = 9;
  const auto results = RunScenario(scenario, {});
  EXPECT_EQ(results[0].outcome, RunOutcome::kFail);
  EXPECT_THAT(absl::StrJoin(results[0].failures, "\n"), HasSubstr("NO_STATEMENT"));
  ASSERT_FALSE(results[0].findings.empty());
  EXPECT_THAT(
      results[0].findings[0].verdict.evidence[0],
      HasSubstr("rank 1: LATE in call 9 of finalizer data_parallel/data_parallel_sum never acts"));
}

// Calls are recorded only when asked for, and recording changes nothing.
TEST(TransportFaults, CallsAreRecordedOnlyOnDemand) {
  const Scenario scenario = testing::Shipped("transport/dropped_contribution");
  const auto plain = RunScenario(scenario, {});
  const auto recorded = RunScenario(scenario, {.record_calls = true});
  ASSERT_EQ(plain.size(), recorded.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i].calls, nullptr);
    ASSERT_NE(recorded[i].calls, nullptr);
    EXPECT_EQ(recorded[i].calls->size(), 2u);
    EXPECT_FALSE((*recorded[i].calls)[0].calls.empty());
    EXPECT_EQ(plain[i].digest, recorded[i].digest);
  }
}

}  // namespace
}  // namespace sumonce

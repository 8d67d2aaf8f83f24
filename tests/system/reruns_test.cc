// Runs of one seed that differ: what is found, where, and that sound runs never do.
#include "verify/reruns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/shipped.h"
#include "verify/runner.h"

namespace sumonce {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kDpSum[] = "finalizer data_parallel/data_parallel_sum";

const Verdict* Nondeterministic(const ScenarioResult& result) {
  for (const Finding& finding : result.findings) {
    if (finding.verdict.mechanism == Mechanism::kNondeterministic) return &finding.verdict;
  }
  return nullptr;
}

std::vector<ScenarioResult> RunAgain(const Scenario& scenario, bool native_sums,
                                     ExecutorKind kind = ExecutorKind::kFibers) {
  RunnerOptions options;
  options.native_sums = native_sums;
  options.executor.kind = kind;
  options.reruns = 3;
  return RunScenario(scenario, options);
}

// Four terms in the order in which they come: no gradient is wrong, and the call is named.
TEST(Reruns, AnUnorderedSumIsFoundAtItsCall) {
  const Scenario scenario = testing::Shipped("transport/unordered_sum");
  const auto results = RunScenario(scenario, {});
  ASSERT_EQ(results.size(), 2u);
  const Verdict* verdict = Nondeterministic(results[0]);
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->operation, kDpSum);
  EXPECT_THAT(verdict->affected, Contains("decoder.layers.0.mlp.linear_fc1.weight"));
  EXPECT_EQ(results[0].outcome, RunOutcome::kPass);
  EXPECT_EQ(results[0].findings.size(), 1u) << "every gradient is right";
  EXPECT_EQ(results[1].outcome, RunOutcome::kPass);
  EXPECT_THAT(results[1].findings, IsEmpty());
}

// Between layers the first operation whose value differs is the culprit, not those that read it.
TEST(Reruns, AnUnorderedActivationIsFoundAtItsOperation) {
  const auto results = RunScenario(testing::Shipped("transport/unordered_activation"), {});
  const Verdict* verdict = Nondeterministic(results[0]);
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->operation, "decoder.layers.0.self_attention.linear_proj/AllReduce#0");
  EXPECT_THAT(verdict->affected, Contains("embedding.word_embeddings.weight"));
}

// A backward sum: nothing differs forward.
TEST(Reruns, AnUnorderedBackwardSumIsFoundAtItsOperation) {
  Scenario scenario = testing::Shipped("transport/unordered_activation");
  std::get<CommunicationEdit>(scenario.defects[0].kind).fault.operation =
      "*.linear_qkv/Copy#0 backward";
  scenario.expectations[0].operation = "";
  const auto results = RunScenario(scenario, {});
  const Verdict* verdict = Nondeterministic(results[0]);
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->operation, "decoder.layers.0.self_attention.linear_qkv/Copy#0");
  ASSERT_EQ(verdict->evidence.size(), 2u);
  EXPECT_THAT(verdict->evidence[1], HasSubstr("linear_qkv/Copy#0 backward"));
}

// Who is content with sums in no order learns what that means; small integers have one sum in any.
TEST(Reruns, NativeSumsAreNotTheSameTwice) {
  const auto results = RunAgain(testing::Shipped("lora/all_targets"), true);
  EXPECT_EQ(results[0].outcome, RunOutcome::kFail);
  EXPECT_NE(Nondeterministic(results[0]), nullptr);
  ASSERT_FALSE(results[0].failures.empty());
  EXPECT_THAT(results[0].failures[0],
              HasSubstr("the run, repeated: expected RIGHT, found WRONG NONDETERMINISTIC"));
  for (const ScenarioResult& result :
       RunAgain(testing::Shipped("lora/row_flag_missing_exact"), true))
    EXPECT_EQ(Nondeterministic(result), nullptr) << result.name;
}

TEST(Reruns, OrderedSumsAre) {
  for (const char* name : {"lora/all_targets", "gdn/gamma_flagged", "lora/pr_173"}) {
    for (const ExecutorKind kind : {ExecutorKind::kFibers, ExecutorKind::kThreads}) {
      for (const ScenarioResult& result : RunAgain(testing::Shipped(name), false, kind)) {
        EXPECT_EQ(result.outcome, RunOutcome::kPass) << result.name;
        EXPECT_EQ(Nondeterministic(result), nullptr) << result.name;
      }
    }
  }
}

// Nothing to find where the transport keeps the order all the same: said, not passed.
TEST(Reruns, TransportsThatKeepTheOrderSkip) {
  RunnerOptions options;
  options.transport = "fake_nccl";
  const auto results = RunScenario(testing::Shipped("transport/unordered_sum"), options);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].outcome, RunOutcome::kSkip);
  EXPECT_THAT(results[0].skip_reason, HasSubstr("fake_nccl adds terms in rank order"));
}

}  // namespace
}  // namespace sumonce

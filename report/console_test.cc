#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "report/formats.h"
#include "report/testing/sample_results.h"

namespace sumonce {
namespace {

using ::sumonce::testing::DoubleSum;
using ::sumonce::testing::kLoraB;
using ::sumonce::testing::LoraResult;
using ::sumonce::testing::LoraScenario;
using ::sumonce::testing::LoraTable;
using ::sumonce::testing::MissingSum;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ConsoleText(const std::vector<ScenarioResult>& results,
                        const ReporterOptions& options = {}) {
  std::ostringstream out;
  const auto reporter = FindReportFormat("console")->make(out, options);
  Summary summary;
  reporter->Begin(static_cast<int>(results.size()));
  for (const ScenarioResult& result : results) {
    summary.Count(result);
    reporter->OnResult(result);
  }
  reporter->End(summary);
  return out.str();
}

// What a user reads of a founding case that is as expected: the mechanism, and the cure that was
// tried.
TEST(Console, PassNamesTheExpectedMechanismAndItsTriedCure) {
  const Scenario scenario = LoraScenario();
  ScenarioResult result = LoraResult(scenario, RunOutcome::kPass);
  result.findings[0].expectation = &scenario.expectations[0];
  EXPECT_EQ(ConsoleText({result}),
            R"(PASS  lora/row_flag_missing  tp=4  12.3 ms
  decoder.layers.3.self_attention.linear_proj.lora_B  MISSING_SUM over tp, coefficient none: per rank (expected)
    cure: set sequence_parallel=true on decoder.layers.3.self_attention.linear_proj.lora_B (cure tried: right, in numbers and for every tp)
sumonce: 1 passed, 0 failed, 0 skipped
)");
}

// The form of docs/ARCHITECTURE.md: what, where, how much, why, and how to see it again.
TEST(Console, FailureSaysWhatWhereHowMuchWhyAndHowToSeeItAgain) {
  const Scenario scenario = LoraScenario();
  ScenarioResult result = LoraResult(scenario, RunOutcome::kFail);
  result.failures = {"1 parameter is WRONG and no expectation names it"};
  EXPECT_EQ(ConsoleText({result}),
            R"(FAIL  lora/row_flag_missing  tp=4  12.3 ms
  1 parameter is WRONG and no expectation names it
  decoder.layers.3.self_attention.linear_proj.lora_B   [64, 8] float64   rule: none claimed
    rank 0: exactly zero   rank 1: 0.31 of the reference's norm
    rank 2: 0.38 of the reference's norm   rank 3: 0.67 of the reference's norm
  MISSING_SUM over tp, coefficient none: per rank: each rank holds its own share, and nobody adds them up
    the sum over tp is the reference
    class partial, action none
    proof: WRONG: MISSING_SUM over tp, coefficient none: per rank; before the finalizer tp: P, after tp: P
  cure: set sequence_parallel=true on decoder.layers.3.self_attention.linear_proj.lora_B (cure tried: right, in numbers and for every tp)
  scenarios/lora/row_flag_missing.textproto:14:3: note: defect declared here
  reproduce: sumonce run scenarios/lora/row_flag_missing.textproto --seed 7 --schedule 0
sumonce: 0 passed, 1 failed, 0 skipped
)");
}

TEST(Console, RuleAndActionOfADoubleSumAreNamed) {
  ScenarioResult result{.name = "gdn/gamma", .outcome = RunOutcome::kFail};
  result.findings = {DoubleSum()};
  const std::string text = ConsoleText({result});
  EXPECT_THAT(text, HasSubstr("[16] float64   rule: sequence_parallel_sum\n"));
  EXPECT_THAT(text, HasSubstr("class complete, action SUM over tp\n"));
  EXPECT_THAT(text, HasSubstr("DOUBLE_SUM over tp, coefficient tp: "));
}

// An untried cure is never shown as if it had been.
TEST(Console, CureThatNobodyTriedSaysSo) {
  ScenarioResult result{.name = "a/b", .outcome = RunOutcome::kFail};
  result.findings = {MissingSum(kLoraB)};
  result.findings[0].cure->tried = false;
  EXPECT_THAT(ConsoleText({result}), HasSubstr("lora_B (cure not tried)\n"));
}

TEST(Console, ParametersThatSayTheSameAreOneEntry) {
  const Scenario scenario = LoraScenario();
  ScenarioResult result = LoraResult(scenario, RunOutcome::kPass);
  result.findings = {MissingSum("a"), MissingSum("b"), MissingSum("c"), DoubleSum()};
  for (Finding& finding : result.findings) finding.expectation = &scenario.expectations[0];
  const std::string text = ConsoleText({result});
  EXPECT_THAT(text, HasSubstr("  a, b and 1 more  MISSING_SUM over tp"));
  EXPECT_THAT(text,
              HasSubstr("cure: set sequence_parallel=true on a, and 2 more like it (cure tried"));
  EXPECT_THAT(text,
              HasSubstr(testing::kGamma + "  DOUBLE_SUM over tp, coefficient tp (expected)\n"));
}

// What has no mesh says what it is, and what can be concluded stands below, in every outcome.
TEST(Console, AboutAndStatementsAreShown) {
  ScenarioResult result{.name = "adapter"};
  result.about = "16 modules in 4 layers";
  result.statements = {"every lora_B is zero"};
  result.text_tables = {{.title = "by kind", .columns = {"kind"}, .rows = {{"a"}}}};
  EXPECT_THAT(ConsoleText({result}),
              AllOf(HasSubstr("PASS  adapter  16 modules in 4 layers  "),
                    HasSubstr("\n  by kind\n    kind\n    a\n  every lora_B is zero\n")));
}

// A cured twin that is not right points at the cure, too.
TEST(Console, CuredTwinThatFailsPointsAtTheCure) {
  const Scenario scenario = LoraScenario();
  ScenarioResult result = LoraResult(scenario, RunOutcome::kFail);
  result.name += "@cured";
  EXPECT_THAT(ConsoleText({result}),
              HasSubstr("row_flag_missing.textproto:16:1: note: cure declared here\n"));
}

// Exactly zero is the evidence of the founding case: nothing else may look like it.
TEST(Console, RankTableIsAlignedAndOnlyZeroIsZero) {
  ScenarioResult result{.name = "lora/pr_173", .elapsed_us = 2'500'000, .mesh = {.tp = 4, .dp = 2}};
  result.tables = {LoraTable()};
  EXPECT_EQ(ConsoleText({result}),
            R"(PASS  lora/pr_173  tp=4 dp=2  2.5 s
  norm of the gradient, step 1
                                 rank 0    rank 1     rank 2  rank 3
    layers.0.linear_proj.lora_B    0.25  1.5e-300  1.235e+04       2
    layers.1.linear_proj.lora_B       0         0          0   0.125
sumonce: 1 passed, 0 failed, 0 skipped
)");
}

// The runner notes each edit with its place; the footer says it, and only when something failed.
// Figures are shown with a failure or a table.
TEST(Console, NotesAreShownWhereTheyMatterAndNotThePlacesOfEdits) {
  ScenarioResult result{.name = "a/b",
                        .notes = {"f:1:2: note: clear a mark", "tolerance: 12 roundings"}};
  EXPECT_THAT(ConsoleText({result}), Not(HasSubstr("tolerance")));
  result.outcome = RunOutcome::kFail;
  EXPECT_EQ(ConsoleText({result}),
            "FAIL  a/b  tp=1  0 us\n  tolerance: 12 roundings\n"
            "sumonce: 0 passed, 1 failed, 0 skipped\n");
  result.outcome = RunOutcome::kPass;
  result.tables = {LoraTable()};
  EXPECT_THAT(ConsoleText({result}), HasSubstr("  tolerance: 12 roundings\n"));
}

// Who waits for whom is what a deadlock has to say, expected or not.
TEST(Console, ExpectedDeadlockSaysWhoWaitsForWhom) {
  const Expectation expectation;
  ScenarioResult result{.name = "hang/a"};
  Finding finding{.verdict = {.outcome = Outcome::kWrong,
                              .mechanism = Mechanism::kDeadlock,
                              .evidence = {"rank 0 waits in AllReduce for rank 1"}}};
  finding.expectation = &expectation;
  result.findings = {finding};
  EXPECT_THAT(ConsoleText({result}), HasSubstr("  the run itself  DEADLOCK (expected)\n"
                                               "    rank 0 waits in AllReduce for rank 1\n"));
}

TEST(Console, ManyFailuresAreCutShort) {
  ScenarioResult result{.name = "a/b", .outcome = RunOutcome::kFail};
  result.failures.assign(11, "wrong");
  EXPECT_THAT(ConsoleText({result}), HasSubstr("  wrong\n  and 3 more like these"));
}

TEST(Console, SkipSaysWhy) {
  const ScenarioResult result{
      .name = "a/b", .outcome = RunOutcome::kSkip, .skip_reason = "no GPU on this machine"};
  EXPECT_EQ(ConsoleText({result}),
            "SKIP  a/b  no GPU on this machine\nsumonce: 0 passed, 0 failed, 1 skipped\n");
}

TEST(Console, InterruptedRunSaysSoBeforeTheLastLine) {
  std::ostringstream out;
  FindReportFormat("console")->make(out, {})->End({.passed = 2, .interrupted = true});
  EXPECT_THAT(out.str(), HasSubstr("interrupted"));
  EXPECT_THAT(out.str(), EndsWith("\nsumonce: 2 passed, 0 failed, 0 skipped\n"));
}

// Colour repeats the words and never replaces them: without the escapes the text is the same.
TEST(Console, ColorOnlyAddsEscapes) {
  const Scenario scenario = LoraScenario();
  const ScenarioResult result = LoraResult(scenario, RunOutcome::kFail);
  std::string colored = ConsoleText({result}, {.color = true});
  EXPECT_THAT(colored, HasSubstr("\033[1;31mFAIL\033[0m  lora"));
  for (size_t at; (at = colored.find('\033')) != std::string::npos;)
    colored.erase(at, colored.find('m', at) - at + 1);
  EXPECT_EQ(colored, ConsoleText({result}));
  EXPECT_THAT(ConsoleText({result}), Not(HasSubstr("\033")));
}

TEST(ProofConsole, TableHoldsForEverySize) {
  const Scenario scenario = LoraScenario();
  ScenarioResult result = LoraResult(scenario, RunOutcome::kPass);
  result.elapsed_us = 480;
  result.findings[0].expectation = &scenario.expectations[0];
  result.conditions = {"tp divides k", "tp divides s"};
  EXPECT_EQ(ConsoleText({result}, {.proof_only = true}),
            R"(PASS  lora/row_flag_missing  tp=4  480 us
  parameter                                           outcome  mechanism    axis  coefficient     class    action  before the finalizer  after it
  decoder.layers.3.self_attention.linear_proj.lora_B  WRONG    MISSING_SUM  tp    none: per rank  partial  none    tp: P                 tp: P     expected
  cure: set sequence_parallel=true on decoder.layers.3.self_attention.linear_proj.lora_B (cure tried: right, in numbers and for every tp)
  11 parameters RIGHT, for every size of the axes
  holds when tp divides k, tp divides s
sumonce: 1 passed, 0 failed, 0 skipped
)");
}

TEST(ProofConsole, LostStatementNamesOperationAndReason) {
  ScenarioResult result{.name = "a/b", .outcome = RunOutcome::kFail};
  for (const char* param : {"p", "q"}) {
    Finding finding{.verdict = {.param = param, .outcome = Outcome::kNoStatement}};
    finding.proof = Proof{.param = param,
                          .outcome = Outcome::kNoStatement,
                          .operation = "mlp/Silu#0",
                          .reason = "not linear in a partial operand"};
    result.findings.push_back(finding);
  }
  EXPECT_THAT(
      ConsoleText({result}, {.proof_only = true}),
      HasSubstr("  NO_STATEMENT at mlp/Silu#0: not linear in a partial operand (2 parameters)\n"
                "    below it: p, q\n"));
}

}  // namespace
}  // namespace sumonce

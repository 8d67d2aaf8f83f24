// Text for people: a line per result, the mechanism and the cure of what was expected, and for a
// failure what, where, how much, why, and how to see it again.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "report/console_text.h"
#include "report/describe.h"
#include "report/finding_groups.h"
#include "report/formats.h"
#include "report/text_table.h"

namespace sumonce {
namespace {

constexpr size_t kMaxRankLines = 16;  // of per_rank; JSON has all
constexpr size_t kMaxParamsInLine = 2;
constexpr size_t kMaxParamsInBlock = 8;

class ConsoleReporter : public Reporter {
 public:
  ConsoleReporter(std::ostream& out, const ReporterOptions& options)
      : out_(out), paint_(options.color) {}

  void Begin(int) override {}
  void OnResult(const ScenarioResult& result) override;
  void End(const Summary& summary) override { out_ << SummaryText(summary) << std::flush; }

 private:
  void WriteExpected(const FindingGroup& group);
  void WriteBlock(const FindingGroup& group);
  void WriteCure(const FindingGroup& group, const char* indent);

  std::ostream& out_;
  Paint paint_;
};

void ConsoleReporter::OnResult(const ScenarioResult& result) {
  out_ << HeadLine(result, paint_);
  out_ << FailureLines(result);
  const bool failed = result.outcome == RunOutcome::kFail;
  for (const FindingGroup& group : GroupFindings(result.findings)) {
    const bool unexpected = group.first->expectation == nullptr;
    failed&& unexpected ? WriteBlock(group) : WriteExpected(group);
  }
  for (const RankTable& table : result.tables) out_ << RankTableText(table, 2);
  for (const TextTable& table : result.text_tables) out_ << TextTableText(table, 2);
  // Figures belong to a failure, or to a scenario that is a report; elsewhere they would bury the
  // verdicts.
  if (failed || !result.tables.empty()) {
    for (const std::string& note : PlainNotes(result)) out_ << "  " << note << '\n';
  }
  out_ << StatementLines(result);
  if (failed) out_ << FailureFooter(result);
  out_ << std::flush;
}

// "  *.lora_B  MISSING_SUM over tp, coefficient none: per rank (expected)" and its cure.
void ConsoleReporter::WriteExpected(const FindingGroup& group) {
  const Verdict& verdict = group.first->verdict;
  const std::string steps = StepsText(group.steps);
  out_ << "  " << ListText(ParamNames(group), kMaxParamsInLine) << "  " << VerdictText(verdict);
  if (!steps.empty()) out_ << ", " << steps;
  if (!verdict.consequences.empty()) out_ << ", " << ConsequencesText(verdict);
  if (group.first->expectation != nullptr) out_ << " (expected)";
  if (!verdict.affected.empty() && verdict.mechanism != Mechanism::kNormMiscount)
    out_ << "; below it " << verdict.affected.size() << " parameters";
  if (verdict.outcome == Outcome::kNoEvidence && group.first->proof)
    out_ << "; proof: " << ProofText(*group.first->proof);
  out_ << '\n';
  // Who waits for whom, or which calls did not match: a run that ended has no parameter to look at.
  if (verdict.param.empty() && !verdict.evidence.empty())
    out_ << "    " << verdict.evidence.front() << '\n';
  WriteCure(group, "    ");
}

void ConsoleReporter::WriteBlock(const FindingGroup& group) {
  const Finding& finding = *group.first;
  const Verdict& verdict = finding.verdict;
  out_ << "  " << BlockHead(group) << '\n' << WrappedItems(FirstRanks(verdict, kMaxRankLines), 4);
  out_ << "  " << paint_.Strong(VerdictText(verdict));
  const std::string_view meaning = Meaning(verdict.mechanism);
  if (!meaning.empty()) out_ << ": " << meaning;
  out_ << '\n';
  for (const std::string& line : EvidenceLines(finding)) out_ << "    " << line << '\n';
  if (!verdict.affected.empty() && verdict.mechanism != Mechanism::kNormMiscount)
    out_ << "    below it: " << ListText(verdict.affected, kMaxParamsInBlock) << '\n';
  const std::vector<std::string> names = ParamNames(group);
  const std::vector<std::string> others(names.begin() + 1, names.end());
  if (!others.empty()) out_ << "    the same: " << ListText(others, kMaxParamsInBlock) << '\n';
  WriteCure(group, "  ");
}

void ConsoleReporter::WriteCure(const FindingGroup& group, const char* indent) {
  if (group.cures.empty()) return;
  out_ << indent << "cure: " << group.cures.front();
  if (group.cures.size() > 1) out_ << ", and " << group.cures.size() - 1 << " more like it";
  out_ << " (" << TrialText(*group.first->cure) << ")\n";
  if (group.first->cure->cost)
    out_ << indent << "cost: " << CostText(*group.first->cure->cost) << '\n';
}

}  // namespace

std::unique_ptr<Reporter> MakeConsoleReporter(std::ostream& out, const ReporterOptions& options) {
  if (options.proof_only) return MakeProofConsoleReporter(out, options);
  if (options.audit) return MakeAuditConsoleReporter(out, options);
  return std::make_unique<ConsoleReporter>(out, options);
}

}  // namespace sumonce

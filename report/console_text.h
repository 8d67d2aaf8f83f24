// The pieces that the console's views share. All end with a newline unless they say otherwise.
#pragma once

#include <string>
#include <vector>

#include "report/finding_groups.h"
#include "report/reporter.h"
#include "verify/verdict.h"

namespace sumonce {

// Puts ANSI escapes around words, or leaves them. The words say the same without.
class Paint {
 public:
  explicit Paint(bool color) : color_(color) {}
  std::string Outcome(RunOutcome outcome) const;
  std::string Strong(const std::string& text) const;

 private:
  std::string Wrap(const char* code, const std::string& text) const;
  bool color_;
};

// "PASS  lora/row_flag_missing  tp=4  12.3 ms"; a skipped one has its reason.
std::string HeadLine(const ScenarioResult& result, const Paint& paint);

// What can and cannot be concluded, a line each.
std::string StatementLines(const ScenarioResult& result);

// Why it failed, a line each; the first few if there are many.
std::string FailureLines(const ScenarioResult& result);

// The parameters, "the run itself" for the empty name. No newline.
std::vector<std::string> ParamNames(const FindingGroup& group);

// "<param>   [64, 8] float64   rule: none claimed   step 2". No newline.
std::string BlockHead(const FindingGroup& group);

// The per-rank texts, with a last entry for those left out.
std::vector<std::string> FirstRanks(const Verdict& verdict, size_t shown);

// Evidence, then class and action, then the proof. One line each, without newlines.
std::vector<std::string> EvidenceLines(const Finding& finding);

// The notes that point at no place in the file: figures and conditions. The places are the
// failure's footer.
std::vector<std::string> PlainNotes(const ScenarioResult& result);

// Where the defect or the cure is declared, and how to see it again.
std::string FailureFooter(const ScenarioResult& result);

// "sumonce: 40 parameters right, 8 wrong, 3 undecided, 0 without evidence".
std::string AuditSummaryText(const Summary& summary);

// "sumonce: 3 passed, 1 failed, 0 skipped"; the line before says if it was interrupted.
std::string SummaryText(const Summary& summary);

}  // namespace sumonce

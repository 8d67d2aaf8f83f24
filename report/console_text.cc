#include "report/console_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "report/describe.h"

namespace sumonce {
namespace {

constexpr size_t kMaxFailures = 8;

// The places of the edits, as compilers print a note.
std::string Notes(const std::vector<Edit>& edits, const char* what) {
  std::string text;
  for (const Edit& edit : edits) {
    if (edit.location.file.empty()) continue;
    absl::StrAppend(&text, "  ", LocationText(edit.location), ": note: ", what, "\n");
  }
  return text;
}

}  // namespace

std::string Paint::Outcome(RunOutcome outcome) const {
  std::string word(Name(outcome));
  switch (outcome) {
    case RunOutcome::kPass:
      return Wrap("32", word);
    case RunOutcome::kFail:
      return Wrap("1;31", word);
    case RunOutcome::kSkip:
      return Wrap("33", word);
  }
  return word;
}

std::string Paint::Strong(const std::string& text) const { return Wrap("1", text); }

std::string Paint::Wrap(const char* code, const std::string& text) const {
  return color_ ? absl::StrCat("\033[", code, "m", text, "\033[0m") : text;
}

std::string HeadLine(const ScenarioResult& result, const Paint& paint) {
  const std::string outcome = paint.Outcome(result.outcome);
  if (result.outcome == RunOutcome::kSkip)
    return absl::StrCat(outcome, "  ", result.name, "  ", result.skip_reason, "\n");
  const std::string about = result.about.empty() ? MeshText(result.mesh) : result.about;
  return absl::StrCat(outcome, "  ", result.name, "  ", about, "  ", ElapsedText(result.elapsed_us),
                      "\n");
}

std::string StatementLines(const ScenarioResult& result) {
  std::string text;
  for (const std::string& statement : result.statements)
    absl::StrAppend(&text, "  ", statement, "\n");
  return text;
}

std::string FailureLines(const ScenarioResult& result) {
  std::string text;
  const size_t shown = std::min(result.failures.size(), kMaxFailures);
  for (size_t i = 0; i < shown; ++i) absl::StrAppend(&text, "  ", result.failures[i], "\n");
  const size_t left = result.failures.size() - shown;
  if (left > 0)
    absl::StrAppend(&text, "  and ", left, " more like these (--format json has all)\n");
  return text;
}

std::vector<std::string> ParamNames(const FindingGroup& group) {
  std::vector<std::string> names;
  for (const std::string& param : group.params)
    names.push_back(param.empty() ? SubjectOf(group.first->verdict) : param);
  return names;
}

std::string BlockHead(const FindingGroup& group) {
  const Verdict& verdict = group.first->verdict;
  std::string head = ParamNames(group).front();
  if (!verdict.shape.empty()) absl::StrAppend(&head, "   ", verdict.shape);
  if (!verdict.param.empty())
    absl::StrAppend(&head, "   rule: ", verdict.rule.empty() ? "none claimed" : verdict.rule);
  const std::string steps = StepsText(group.steps);
  if (!steps.empty()) absl::StrAppend(&head, "   ", steps);
  return head;
}

std::vector<std::string> FirstRanks(const Verdict& verdict, size_t shown) {
  std::vector<std::string> ranks = verdict.per_rank;
  if (ranks.size() <= shown) return ranks;
  const size_t left = ranks.size() - shown;
  ranks.resize(shown);
  ranks.push_back(absl::StrCat("and ", left, " more ranks (--format json has all)"));
  return ranks;
}

std::vector<std::string> EvidenceLines(const Finding& finding) {
  const Verdict& verdict = finding.verdict;
  std::vector<std::string> lines = verdict.evidence;
  if (verdict.grad_class != GradClass::kUnknown) {
    std::string line = absl::StrCat("class ", ToAbsl(Name(verdict.grad_class)));
    const std::string action = ActionText(verdict);
    if (!action.empty()) absl::StrAppend(&line, ", action ", action);
    lines.push_back(std::move(line));
  }
  if (!verdict.consequences.empty()) lines.push_back(ConsequencesText(verdict));
  if (finding.proof) {
    std::string line = absl::StrCat("proof: ", ProofText(*finding.proof));
    if (!finding.proof->before.empty())
      absl::StrAppend(&line, "; before the finalizer ", finding.proof->before, ", after ",
                      finding.proof->after);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> PlainNotes(const ScenarioResult& result) {
  std::vector<std::string> plain;
  for (const std::string& note : result.notes) {
    if (note.find(": note: ") == std::string::npos) plain.push_back(note);
  }
  return plain;
}

std::string FailureFooter(const ScenarioResult& result) {
  std::string text;
  if (result.scenario != nullptr) {
    text += Notes(result.scenario->defects, "defect declared here");
    if (result.name.ends_with("@cured"))
      text += Notes(result.scenario->cures, "cure declared here");
  }
  if (!result.reproduce.empty()) absl::StrAppend(&text, "  reproduce: ", result.reproduce, "\n");
  return text;
}

std::string AuditSummaryText(const Summary& summary) {
  return absl::StrCat(
      summary.interrupted ? "interrupted: what is not listed above was not audited\n" : "",
      "sumonce: ", summary.params_right, " parameters right, ", summary.params_wrong, " wrong, ",
      summary.params_undecided, " undecided, ", summary.params_without_evidence,
      " without evidence\n");
}

// Where captures were asked for.
static std::string SavedText(const SavedCounts& captures) {
  if (captures == SavedCounts()) return "";
  return absl::StrCat(", ", captures.saved, captures.saved == 1 ? " capture" : " captures",
                      " saved, ", captures.not_saved, " not saved");
}

std::string SummaryText(const Summary& summary) {
  return absl::StrCat(
      summary.interrupted ? "interrupted: what is not listed above did not run\n" : "",
      "sumonce: ", summary.passed, " passed, ", summary.failed, " failed, ", summary.skipped,
      " skipped", SavedText(summary.captures), "\n");
}

}  // namespace sumonce

// An audit for people: the table of parameter kinds by rank, worst first, then each finding with
// why, then what is undecided and what would decide it. A page, whatever the model's size.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "report/console_text.h"
#include "report/describe.h"
#include "report/finding_groups.h"
#include "report/formats.h"
#include "report/text_table.h"

namespace sumonce {
namespace {

constexpr size_t kMaxRanks = 16;
constexpr size_t kMaxParams = 4;
constexpr size_t kMaxGroups = 20;

class AuditConsoleReporter : public Reporter {
 public:
  AuditConsoleReporter(std::ostream& out, const ReporterOptions& options)
      : out_(out), paint_(options.color) {}

  void Begin(int) override {}

  void OnResult(const ScenarioResult& result) override {
    out_ << HeadLine(result, paint_) << FailureLines(result);
    for (const RankTable& table : result.tables) out_ << RankTableText(table, 2);
    const std::vector<FindingGroup> groups = GroupFindings(result.findings);
    for (size_t i = 0; i < groups.size() && i < kMaxGroups; ++i) WriteFinding(groups[i]);
    if (groups.size() > kMaxGroups)
      out_ << "  and " << groups.size() - kMaxGroups << " more findings (--format json has all)\n";
    WriteUndecided(result.undecided);
    for (const std::string& note : result.notes) out_ << "  " << note << '\n';
    for (const std::string& condition : result.conditions) out_ << "  " << condition << '\n';
    if (result.outcome == RunOutcome::kFail) out_ << FailureFooter(result);
    out_ << std::flush;
  }

  void End(const Summary& summary) override { out_ << AuditSummaryText(summary) << std::flush; }

 private:
  void WriteFinding(const FindingGroup& group) {
    const Verdict& verdict = group.first->verdict;
    const std::string steps = StepsText(group.steps);
    out_ << "  " << paint_.Strong(VerdictText(verdict));
    const std::string_view meaning = Meaning(verdict.mechanism);
    if (!meaning.empty()) out_ << ": " << meaning;
    out_ << (steps.empty() ? "" : ", " + steps) << '\n';
    out_ << "    " << ListText(ParamNames(group), kMaxParams);
    if (!verdict.shape.empty()) out_ << "   " << verdict.shape;
    out_ << '\n' << WrappedItems(FirstRanks(verdict, kMaxRanks), 4);
    for (const std::string& line : EvidenceLines(*group.first)) out_ << "    " << line << '\n';
    if (!verdict.possible.empty())
      out_ << "    it may also be " << absl::StrJoin(verdict.possible, " or ") << "; what would "
           << "decide: " << verdict.decides << '\n';
    if (!group.cures.empty()) {
      out_ << "    cure: " << group.cures.front();
      if (group.cures.size() > 1) out_ << ", and " << group.cures.size() - 1 << " more like it";
      out_ << " (" << TrialText(*group.first->cure) << ")\n";
    }
    if (!verdict.affected.empty())
      out_ << "    inherited by " << verdict.affected.size() << ": "
           << ListText(verdict.affected, kMaxParams) << '\n';
  }

  // By what is possible, or why nothing can be said.
  void WriteUndecided(const std::vector<Verdict>& undecided) {
    std::map<std::string, std::vector<std::string>> groups;
    for (const Verdict& verdict : undecided) {
      const std::string what = verdict.possible.empty()
                                   ? (verdict.evidence.empty() ? "" : verdict.evidence.front())
                                   : absl::StrCat(absl::StrJoin(verdict.possible, " or "),
                                                  "; what would decide: ", verdict.decides);
      groups[what].push_back(verdict.param);
    }
    for (const auto& [what, params] : groups) {
      out_ << "  undecided, " << params.size()
           << (params.size() == 1 ? " parameter: " : " parameters: ") << what << '\n'
           << "    " << ListText(params, kMaxParams) << '\n';
    }
  }

  std::ostream& out_;
  Paint paint_;
};

}  // namespace

std::unique_ptr<Reporter> MakeAuditConsoleReporter(std::ostream& out,
                                                   const ReporterOptions& options) {
  return std::make_unique<AuditConsoleReporter>(out, options);
}

}  // namespace sumonce

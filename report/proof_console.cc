// The static verdict as a table: what the proof says of every parameter, for every size of the
// axes.
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

constexpr size_t kMaxParamsBelow = 8;

using Row = std::vector<std::string>;

std::string AxisText(std::optional<Axis> axis) { return axis ? std::string(Name(*axis)) : ""; }

std::string ClassText(GradClass grad_class) {
  return grad_class == GradClass::kUnknown ? "" : std::string(Name(grad_class));
}

// "tp = 4", on this mesh; "1/4", "none: per rank" as they are.
std::string CoefficientText(const Proof& proof) {
  const bool symbolic = proof.coefficient.find_first_of("abcdefghijklmnopqrstuvwxyz") == 0 ||
                        proof.coefficient.find('/') != std::string::npos;
  if (!proof.factor || !symbolic) return proof.coefficient;
  return absl::StrCat(proof.coefficient, " = ", *proof.factor);
}

// Without a proof of its own (the proof of the run itself), the verdict says it.
Row ProofRow(const Finding& finding) {
  const Verdict& verdict = finding.verdict;
  const std::string param = SubjectOf(verdict);
  const Proof proof = finding.proof.value_or(
      Proof{verdict.param, verdict.outcome, verdict.mechanism, verdict.axis, verdict.coefficient,
            verdict.factor, verdict.grad_class, verdict.action, verdict.operation, "", "", ""});
  const std::string mechanism =
      proof.mechanism == Mechanism::kNone ? "" : std::string(Name(proof.mechanism));
  return {param,
          std::string(Name(proof.outcome)),
          mechanism,
          AxisText(proof.axis),
          CoefficientText(proof),
          ClassText(proof.grad_class),
          proof.action,
          proof.before,
          proof.after,
          finding.expectation != nullptr ? "expected" : ""};
}

// What has no entry in any row is left out.
std::vector<Row> WithoutEmptyColumns(const std::vector<Row>& rows) {
  std::vector<Row> kept(rows.size());
  for (size_t column = 0; column < rows[0].size(); ++column) {
    bool used = false;
    for (size_t i = 1; i < rows.size(); ++i) used = used || !rows[i][column].empty();
    for (size_t i = 0; used && i < rows.size(); ++i) kept[i].push_back(rows[i][column]);
  }
  return kept;
}

class ProofConsoleReporter : public Reporter {
 public:
  ProofConsoleReporter(std::ostream& out, const ReporterOptions& options)
      : out_(out), paint_(options.color) {}

  void Begin(int) override {}
  void OnResult(const ScenarioResult& result) override {
    out_ << HeadLine(result, paint_);
    out_ << FailureLines(result);
    WriteTable(result);
    WriteRefusals(result);
    WriteCures(result);
    if (result.params_right > 0)
      out_ << "  " << result.params_right
           << (result.params_right == 1 ? " parameter" : " parameters")
           << " RIGHT, for every size of the axes\n";
    if (!result.conditions.empty())
      out_ << "  holds when " << absl::StrJoin(result.conditions, ", ") << '\n';
    out_ << StatementLines(result);
    if (result.outcome == RunOutcome::kFail) out_ << FailureFooter(result);
    out_ << std::flush;
  }
  void End(const Summary& summary) override { out_ << SummaryText(summary) << std::flush; }

 private:
  void WriteTable(const ScenarioResult& result) {
    if (result.findings.empty()) return;
    std::vector<Row> rows = {{"parameter", "outcome", "mechanism", "axis", "coefficient", "class",
                              "action", "before the finalizer", "after it", "expected"}};
    for (const Finding& finding : result.findings) rows.push_back(ProofRow(finding));
    rows[0].back() = "";
    const std::vector<Row> kept = WithoutEmptyColumns(rows);
    out_ << AlignedRows(kept, 2, static_cast<int>(kept[0].size()));
  }

  // Where and why the proof makes no statement: too long for a cell, and often the same for many
  // parameters.
  void WriteRefusals(const ScenarioResult& result) {
    std::map<std::string, std::vector<std::string>> refusals;
    for (const Finding& finding : result.findings) {
      if (!finding.proof || finding.proof->outcome != Outcome::kNoStatement) continue;
      if (!finding.proof->operation.empty() || !finding.proof->reason.empty())
        refusals[ProofText(*finding.proof)].push_back(finding.verdict.param);
    }
    for (const auto& [text, params] : refusals) {
      out_ << "  " << text;
      if (params.size() > 1) {
        out_ << " (" << params.size()
             << " parameters)\n    below it: " << ListText(params, kMaxParamsBelow);
      }
      out_ << '\n';
    }
  }

  void WriteCures(const ScenarioResult& result) {
    for (const FindingGroup& group : GroupFindings(result.findings)) {
      if (group.cures.empty()) continue;
      out_ << "  cure: " << group.cures.front();
      if (group.cures.size() > 1) out_ << ", and " << group.cures.size() - 1 << " more like it";
      out_ << " (" << TrialText(*group.first->cure) << ")\n";
    }
  }

  std::ostream& out_;
  Paint paint_;
};

}  // namespace

std::unique_ptr<Reporter> MakeProofConsoleReporter(std::ostream& out,
                                                   const ReporterOptions& options) {
  return std::make_unique<ProofConsoleReporter>(out, options);
}

}  // namespace sumonce

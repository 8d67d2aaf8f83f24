// Workflow commands of GitHub Actions: a failure becomes an annotation at the defect's line, or at
// the file's beginning (docs.github.com, "Workflow commands for GitHub Actions").
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "report/console_text.h"
#include "report/describe.h"
#include "report/formats.h"

namespace sumonce {
namespace {

// In a message '%', carriage return and newline are escaped; in a property also ':' and ','.
std::string Escaped(std::string_view text, bool property) {
  std::string escaped;
  for (const char c : text) {
    if (c == '%') {
      escaped += "%25";
    } else if (c == '\r') {
      escaped += "%0D";
    } else if (c == '\n') {
      escaped += "%0A";
    } else if (property && c == ':') {
      escaped += "%3A";
    } else if (property && c == ',') {
      escaped += "%2C";
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\t') {
      escaped += '?';  // a log is read on terminals
    } else {
      escaped += c;
    }
  }
  return escaped;
}

Location PlaceOf(const ScenarioResult& result) {
  Location place{.file = result.file, .line = 1, .column = 1};
  if (result.scenario == nullptr || result.scenario->defects.empty()) return place;
  const Location& declared = result.scenario->defects.front().location;
  return declared.line > 0 ? declared : place;
}

class GithubReporter : public Reporter {
 public:
  explicit GithubReporter(std::ostream& out) : out_(out) {}

  void Begin(int) override {}

  void OnResult(const ScenarioResult& result) override {
    if (result.outcome == RunOutcome::kSkip) {
      Command("notice", result, result.skip_reason);
      return;
    }
    if (result.outcome != RunOutcome::kFail) return;
    std::string message;
    for (const std::string& failure : result.failures) absl::StrAppend(&message, failure, "\n");
    for (const Finding& finding : result.findings) {
      if (finding.expectation != nullptr) continue;
      absl::StrAppend(&message, finding.verdict.param, "  ", VerdictText(finding.verdict), "\n");
      if (finding.cure)
        absl::StrAppend(&message, "  cure: ", finding.cure->text, " (", TrialText(*finding.cure),
                        ")\n");
    }
    if (!result.reproduce.empty()) absl::StrAppend(&message, "reproduce: ", result.reproduce);
    Command("error", result, message);
  }

  void End(const Summary& summary) override { out_ << SummaryText(summary) << std::flush; }

 private:
  void Command(std::string_view command, const ScenarioResult& result, std::string_view message) {
    const Location place = PlaceOf(result);
    out_ << "::" << command << " file=" << Escaped(place.file, true) << ",line=" << place.line
         << ",col=" << place.column << ",title=" << Escaped(result.name, true)
         << "::" << Escaped(message, false) << '\n';
  }

  std::ostream& out_;
};

}  // namespace

std::unique_ptr<Reporter> MakeGithubReporter(std::ostream& out, const ReporterOptions&) {
  return std::make_unique<GithubReporter>(out);
}

}  // namespace sumonce

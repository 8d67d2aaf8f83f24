// JUnit XML as CI systems read it (the schema of Jenkins' xunit plugin, junit-10.xsd): a suite per
// area, a case per result, the mechanism as the failure's type.
#include <map>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "report/console_text.h"
#include "report/describe.h"
#include "report/formats.h"
#include "report/utf8.h"

namespace sumonce {
namespace {

struct Case {
  std::string name;
  RunOutcome outcome = RunOutcome::kPass;
  bool error = false;  // ours, not the scenario's
  double seconds = 0;
  std::string type;
  std::string message;
  std::string text;
  std::string digest;
  std::string seed;
};

std::string SecondsText(double seconds) { return absl::StrFormat("%.6f", seconds); }

// XML 1.0 has no place for control characters, not even escaped.
std::string Printable(const std::string& text) {
  std::string printable = ToUtf8(text);
  for (char& c : printable) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') c = '?';
  }
  return printable;
}

std::string AreaOf(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == name.npos ? "scenarios" : name.substr(0, slash);
}

// The first finding that nobody expected names the failure.
std::string TypeOf(const ScenarioResult& result) {
  if (result.internal_error) return "INTERNAL_ERROR";
  for (const Finding& finding : result.findings) {
    if (finding.expectation != nullptr) continue;
    const Verdict& verdict = finding.verdict;
    return std::string(verdict.mechanism == Mechanism::kNone ? Name(verdict.outcome)
                                                             : Name(verdict.mechanism));
  }
  return "EXPECTATION";
}

class JunitReporter : public Reporter {
 public:
  explicit JunitReporter(std::ostream& out) : out_(out) {}

  void Begin(int) override {}

  void OnResult(const ScenarioResult& result) override {
    Case one{.name = result.name,
             .outcome = result.outcome,
             .error = result.internal_error,
             .seconds = result.elapsed_us * 1e-6};
    if (result.outcome == RunOutcome::kSkip) one.message = result.skip_reason;
    if (result.outcome == RunOutcome::kFail) {
      one.type = TypeOf(result);
      one.message = result.failures.empty() ? one.type : result.failures.front();
      one.text = TextOf(result);
    }
    one.digest = result.digest;
    if (result.scenario) one.seed = absl::StrCat(result.scenario->seed);
    suites_[AreaOf(result.name)].push_back(std::move(one));
  }

  void End(const Summary& summary) override {
    pugi::xml_document document;
    pugi::xml_node declaration = document.append_child(pugi::node_declaration);
    declaration.append_attribute("version") = "1.0";
    declaration.append_attribute("encoding") = "UTF-8";
    pugi::xml_node root = document.append_child("testsuites");
    root.append_attribute("name") = "sumonce";
    root.append_attribute("tests") = summary.total();
    root.append_attribute("failures") = summary.failed - summary.internal_errors;
    root.append_attribute("errors") = summary.internal_errors;
    for (const auto& [area, cases] : suites_) AddSuite(area, cases, root);
    document.save(out_, "  ");
    out_.flush();
  }

 private:
  static std::string TextOf(const ScenarioResult& result) {
    std::string text;
    for (const std::string& failure : result.failures) absl::StrAppend(&text, failure, "\n");
    for (const Finding& finding : result.findings) {
      absl::StrAppend(&text, finding.verdict.param, "  ", VerdictText(finding.verdict), "\n");
      if (finding.cure)
        absl::StrAppend(&text, "  cure: ", finding.cure->text, " (", TrialText(*finding.cure),
                        ")\n");
    }
    if (!result.reproduce.empty()) absl::StrAppend(&text, "reproduce: ", result.reproduce, "\n");
    return text;
  }

  static void AddSuite(const std::string& area, const std::vector<Case>& cases,
                       pugi::xml_node& root) {
    int failures = 0, errors = 0, skipped = 0;
    double seconds = 0;
    for (const Case& one : cases) {
      failures += one.outcome == RunOutcome::kFail && !one.error;
      errors += one.error;
      skipped += one.outcome == RunOutcome::kSkip;
      seconds += one.seconds;
    }
    pugi::xml_node suite = root.append_child("testsuite");
    suite.append_attribute("name") = Printable(area).c_str();
    suite.append_attribute("tests") = cases.size();
    suite.append_attribute("failures") = failures;
    suite.append_attribute("errors") = errors;
    suite.append_attribute("skipped") = skipped;
    suite.append_attribute("time") = SecondsText(seconds).c_str();
    AddProperties(cases, suite);
    for (const Case& one : cases) AddCase(area, one, suite);
  }

  // The schema has properties of suites only, so their names begin with the case's.
  static void AddProperties(const std::vector<Case>& cases, pugi::xml_node& suite) {
    pugi::xml_node properties;
    for (const Case& one : cases) {
      const std::pair<const char*, std::string> values[] = {{"seed", one.seed},
                                                            {"digest", one.digest}};
      for (const auto& [what, value] : values) {
        if (value.empty()) continue;
        if (!properties) properties = suite.append_child("properties");
        pugi::xml_node property = properties.append_child("property");
        property.append_attribute("name") = Printable(absl::StrCat(one.name, " ", what)).c_str();
        property.append_attribute("value") = value.c_str();
      }
    }
  }

  static void AddCase(const std::string& area, const Case& one, pugi::xml_node& suite) {
    pugi::xml_node node = suite.append_child("testcase");
    node.append_attribute("name") = Printable(one.name).c_str();
    node.append_attribute("classname") = Printable(area).c_str();
    node.append_attribute("time") = SecondsText(one.seconds).c_str();
    if (one.outcome == RunOutcome::kPass) return;
    const bool skipped = one.outcome == RunOutcome::kSkip;
    pugi::xml_node detail = node.append_child(skipped     ? "skipped"
                                              : one.error ? "error"
                                                          : "failure");
    if (!skipped) detail.append_attribute("type") = one.type.c_str();
    detail.append_attribute("message") = Printable(one.message).c_str();
    if (!one.text.empty()) detail.text() = Printable(one.text).c_str();
  }

  std::ostream& out_;
  std::map<std::string, std::vector<Case>> suites_;
};

}  // namespace

std::unique_ptr<Reporter> MakeJunitReporter(std::ostream& out, const ReporterOptions&) {
  return std::make_unique<JunitReporter>(out);
}

}  // namespace sumonce

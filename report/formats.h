// The table of report formats: --format takes these names.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "report/reporter.h"

namespace sumonce {

struct ReportFormat {
  std::string name;     // "console"
  std::string summary;  // one line, for --help
  // The reporter writes to `out`, which outlives it.
  std::unique_ptr<Reporter> (*make)(std::ostream& out, const ReporterOptions& options);
  bool needs_calls = false;  // shows ScenarioResult::calls: only then are they recorded
};

const std::vector<ReportFormat>& ReportFormats();

// nullptr if there is no such format.
const ReportFormat* FindReportFormat(const std::string& name);

// What the table refers to, one file each.
std::unique_ptr<Reporter> MakeConsoleReporter(std::ostream& out, const ReporterOptions& options);
std::unique_ptr<Reporter> MakeProofConsoleReporter(std::ostream& out,
                                                   const ReporterOptions& options);
std::unique_ptr<Reporter> MakeAuditConsoleReporter(std::ostream& out,
                                                   const ReporterOptions& options);
std::unique_ptr<Reporter> MakeJsonReporter(std::ostream& out, const ReporterOptions& options);
std::unique_ptr<Reporter> MakeJunitReporter(std::ostream& out, const ReporterOptions& options);
std::unique_ptr<Reporter> MakeGithubReporter(std::ostream& out, const ReporterOptions& options);
std::unique_ptr<Reporter> MakeTraceReporter(std::ostream& out, const ReporterOptions& options);

}  // namespace sumonce

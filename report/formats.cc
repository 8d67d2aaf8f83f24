#include "report/formats.h"

namespace sumonce {

const std::vector<ReportFormat>& ReportFormats() {
  static const auto& formats = *new std::vector<ReportFormat>{
      {"console", "text for people", MakeConsoleReporter},
      {"json", "proto/report.proto as JSON, written at the end", MakeJsonReporter},
      {"junit", "JUnit XML, a suite per area, written at the end", MakeJunitReporter},
      {"github", "annotations of GitHub Actions", MakeGithubReporter},
      {"trace", "the calls between ranks as a Chrome trace, for ui.perfetto.dev", MakeTraceReporter,
       true},
  };
  return formats;
}

const ReportFormat* FindReportFormat(const std::string& name) {
  for (const ReportFormat& format : ReportFormats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

}  // namespace sumonce

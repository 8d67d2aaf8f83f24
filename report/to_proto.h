// The one converter of results to the schema proto/report.proto; JSON and later formats are views
// of what it makes.
#pragma once

#include "report/reporter.h"
#include "verify/verdict.h"

namespace sumonce {
namespace proto {
class Report;
class ScenarioReport;
}  // namespace proto

// Fills every field of the schema. Texts that are not UTF-8 (a file's name may be so) have '?' for
// each offending byte.
void ToProto(const ScenarioResult& result, proto::ScenarioReport& report);

// The schema's and the program's version, and the counts; leaves the scenarios.
void ToProto(const Summary& summary, proto::Report& report);

}  // namespace sumonce

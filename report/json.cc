// The whole report as one JSON object, names as in proto/report.proto, every field present.
#include <google/protobuf/util/json_util.h>

#include <string>

#include "base/status.h"
#include "proto/report.pb.h"
#include "report/formats.h"
#include "report/to_proto.h"

namespace sumonce {
namespace {

class JsonReporter : public Reporter {
 public:
  explicit JsonReporter(std::ostream& out) : out_(out) {}

  void Begin(int scenarios) override { report_.mutable_scenarios()->Reserve(scenarios); }
  void OnResult(const ScenarioResult& result) override {
    ToProto(result, *report_.add_scenarios());
  }
  void End(const Summary& summary) override {
    ToProto(summary, report_);
    google::protobuf::util::JsonPrintOptions options;
    options.add_whitespace = true;
    options.always_print_primitive_fields = true;
    options.preserve_proto_field_names = true;
    std::string json;
    const auto status = google::protobuf::util::MessageToJsonString(report_, &json, options);
    SUMONCE_CHECK(status.ok()) << status.ToString();  // the schema has no field that can fail
    out_ << json;
    out_.flush();
  }

 private:
  std::ostream& out_;
  proto::Report report_;
};

}  // namespace

std::unique_ptr<Reporter> MakeJsonReporter(std::ostream& out, const ReporterOptions&) {
  return std::make_unique<JsonReporter>(out);
}

}  // namespace sumonce

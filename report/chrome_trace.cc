// The calls between ranks as a Chrome trace, which Perfetto opens: a process per rank, a track per
// group, a slice per call with what it was, arrows between the parts of one call. The format:
// "Trace Event Format", complete ("X"), metadata ("M") and flow ("s", "t", "f") events; times in
// microseconds. Runs of several scenarios lie one behind the other, each with processes of its own.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "comm/call_check.h"
#include "report/formats.h"
#include "report/trace_layout.h"
#include "report/utf8.h"
#include "report/version.h"

namespace sumonce {
namespace {

constexpr double kGap_us = 1000;  // between the runs of two scenarios

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : ToUtf8(text)) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<int>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string ArgsOf(const RecordedCall& call, const std::string& track) {
  std::string args = absl::StrCat("\"group\":", Quoted(track), ",\"ordinal\":", call.ordinal,
                                  ",\"order\":", call.started, ",\"order_end\":", call.ended);
  if (HasPayload(call.kind)) {
    absl::StrAppend(&args, ",\"count\":", call.count, ",\"bytes\":", call.bytes,
                    ",\"dtype\":", Quoted(Name(call.dtype)));
  }
  if (HasReduceOp(call.kind)) absl::StrAppend(&args, ",\"reduction\":", Quoted(Name(call.op)));
  if (call.kind == CallKind::kBroadcast) absl::StrAppend(&args, ",\"root\":", call.root);
  if (call.kind == CallKind::kSend || call.kind == CallKind::kRecv)
    absl::StrAppend(&args, ",\"peer\":", call.root);
  return absl::StrCat(args, ",\"status\":", Quoted(call.status.ToString()));
}

class TraceReporter : public Reporter {
 public:
  explicit TraceReporter(std::ostream& out) : out_(out) {}

  void Begin(int) override {
    out_ << "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"sumonce\":" << Quoted(Version())
         << "},\"traceEvents\":[";
  }

  void OnResult(const ScenarioResult& result) override {
    if (result.calls == nullptr) return;
    const std::vector<RankCalls>& ranks = *result.calls;
    const TraceLayout layout = LayOut(ranks);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      WriteNames(result.name, ranks[rank], static_cast<int>(rank), layout.tracks[rank]);
    }
    for (const TraceSlice& slice : layout.slices)
      WriteSlice(slice, layout.tracks[slice.rank][slice.track]);
    for (const TraceFlow& flow : layout.flows) WriteFlow(flow);
    first_process_ += static_cast<int>(ranks.size());
    begin_us_ += layout.end_us + kGap_us;
  }

  void End(const Summary&) override { out_ << "\n]}\n" << std::flush; }

 private:
  void WriteEvent(const std::string& fields) {
    out_ << (first_ ? "\n" : ",\n") << '{' << fields << '}';
    first_ = false;
  }

  std::string Where(int rank, int track) const {
    return absl::StrCat("\"pid\":", first_process_ + rank, ",\"tid\":", track);
  }

  void WriteNames(const std::string& scenario, const RankCalls& calls, int rank,
                  const std::vector<std::string>& tracks) {
    std::string name = absl::StrCat(scenario, ", rank ", rank);
    if (calls.dropped > 0)
      absl::StrAppend(&name, " (", calls.dropped, " calls beyond the limit are not shown)");
    WriteEvent(absl::StrCat("\"ph\":\"M\",\"name\":\"process_name\",", Where(rank, 0),
                            ",\"args\":{\"name\":", Quoted(name), "}"));
    WriteEvent(absl::StrCat("\"ph\":\"M\",\"name\":\"process_sort_index\",", Where(rank, 0),
                            ",\"args\":{\"sort_index\":", first_process_ + rank, "}"));
    for (size_t track = 0; track < tracks.size(); ++track) {
      WriteEvent(absl::StrCat("\"ph\":\"M\",\"name\":\"thread_name\",",
                              Where(rank, static_cast<int>(track)),
                              ",\"args\":{\"name\":", Quoted(tracks[track]), "}"));
    }
  }

  void WriteSlice(const TraceSlice& slice, const std::string& track) {
    const RecordedCall& call = *slice.call;
    const std::string kind(Name(call.kind));
    WriteEvent(
        absl::StrFormat("\"ph\":\"X\",\"name\":%s,\"cat\":%s,%s,\"ts\":%.3f,\"dur\":%.3f,"
                        "\"args\":{%s}",
                        Quoted(call.label.empty() ? kind : call.label), Quoted(kind),
                        Where(slice.rank, slice.track), begin_us_ + call.start_us, DurationOf(call),
                        ArgsOf(call, track)));
  }

  void WriteFlow(const TraceFlow& flow) {
    ++flows_;
    for (size_t i = 0; i < flow.points.size(); ++i) {
      const FlowPoint& point = flow.points[i];
      const bool last = i + 1 == flow.points.size();
      const char* phase = i == 0 ? "\"s\"" : last ? "\"f\",\"bp\":\"e\"" : "\"t\"";
      WriteEvent(absl::StrFormat("\"ph\":%s,\"id\":%d,\"name\":%s,\"cat\":\"call\",%s,\"ts\":%.3f",
                                 phase, flows_, Quoted(flow.name), Where(point.rank, point.track),
                                 begin_us_ + point.at_us));
    }
  }

  std::ostream& out_;
  bool first_ = true;
  int first_process_ = 0;
  int64_t flows_ = 0;
  double begin_us_ = 0;
};

}  // namespace

std::unique_ptr<Reporter> MakeTraceReporter(std::ostream& out, const ReporterOptions&) {
  return std::make_unique<TraceReporter>(out);
}

}  // namespace sumonce

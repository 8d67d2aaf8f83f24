#include "comm/mpi/frame.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/errors.h"

namespace sumonce {
namespace {

absl::Status Malformed(const char* what) {
  return absl::InternalError(absl::StrCat("mpi: a malformed frame (", what,
                                          "): do all processes run the same build of sumonce?"));
}

void WriteKey(const CallKey& key, ByteWriter& writer) {
  writer.Text(key.stream);
  writer.I64(key.number);
  writer.I64(key.slot);
}

CallKey ReadKey(ByteReader& reader) {
  CallKey key;
  key.stream = reader.Text();
  key.number = reader.I64();
  key.slot = static_cast<int>(reader.I64());
  return key;
}

void WriteBuffer(const Buffer& buffer, ByteWriter& writer) {
  writer.I64(buffer.count);
  writer.U8(static_cast<uint8_t>(buffer.dtype));
}

Buffer ReadBuffer(ByteReader& reader) {
  Buffer buffer;
  buffer.count = reader.I64();
  buffer.dtype = static_cast<DType>(reader.U8());
  return buffer;
}

}  // namespace

ByteWriter BeginFrame(FrameKind kind, int64_t run) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(kind));
  writer.I64(run);
  return writer;
}

absl::StatusOr<Frame> ParseFrame(std::string bytes) {
  ByteReader reader(bytes);
  const auto kind = static_cast<FrameKind>(reader.U8());
  const int64_t run = reader.I64();
  if (!reader.ok() || kind > FrameKind::kFlush) return Malformed("head");
  return Frame{.kind = kind, .run = run, .bytes = std::move(bytes)};
}

void WriteStatus(const absl::Status& status, ByteWriter& writer) {
  writer.U8(static_cast<uint8_t>(status.code()));
  writer.U8(static_cast<uint8_t>(KindOf(status)));
  writer.Text(FromAbsl(status.message()));
}

absl::Status ReadStatus(ByteReader& reader) {
  const auto code = static_cast<absl::StatusCode>(reader.U8());
  const auto kind = static_cast<RunFailure>(reader.U8());
  const std::string message = reader.Text();
  if (!reader.ok()) return Malformed("status");
  switch (kind) {
    case RunFailure::kCollectiveMismatch:
      return CollectiveMismatchError(message);
    case RunFailure::kDeadlock:
      return DeadlockError(message);
    case RunFailure::kRankLost:
      return RankLostError(message);
    case RunFailure::kNone:
      break;
  }
  return absl::Status(code, message);
}

void WriteCall(const CallFrame& frame, ByteWriter& writer) {
  WriteKey(frame.to, writer);
  writer.I64(frame.from_slot);
  writer.U8(static_cast<uint8_t>(frame.call.kind));
  writer.U8(static_cast<uint8_t>(frame.call.op));
  writer.I64(frame.call.root);
  WriteBuffer(frame.call.in, writer);
  WriteBuffer(frame.call.out, writer);
  writer.Text(frame.call.label);
  writer.I64(frame.split.color);
  writer.I64(frame.split.key);
}

absl::StatusOr<CallFrame> ReadCall(std::string_view body) {
  ByteReader reader(body);
  CallFrame frame;
  frame.to = ReadKey(reader);
  frame.from_slot = static_cast<int>(reader.I64());
  frame.call.kind = static_cast<CallKind>(reader.U8());
  frame.call.op = static_cast<ReduceOp>(reader.U8());
  frame.call.root = static_cast<int>(reader.I64());
  frame.call.in = ReadBuffer(reader);
  frame.call.out = ReadBuffer(reader);
  frame.call.label = reader.Text();
  frame.split.color = static_cast<int>(reader.I64());
  frame.split.key = static_cast<int>(reader.I64());
  const bool known = frame.call.kind <= CallKind::kSplit && frame.call.op <= ReduceOp::kMax &&
                     frame.call.in.dtype <= DType::kUint8 &&
                     frame.call.out.dtype <= DType::kUint8 && frame.from_slot >= 0;
  if (!reader.AtEnd() || !known) return Malformed("call");
  return frame;
}

void WriteData(const DataHead& head, ByteWriter& writer) {
  WriteKey(head.to, writer);
  writer.I64(head.from_slot);
  writer.U8(head.phase);
}

absl::StatusOr<DataHead> ReadData(std::string_view& body) {
  ByteReader reader(body);
  DataHead head;
  head.to = ReadKey(reader);
  head.from_slot = static_cast<int>(reader.I64());
  head.phase = reader.U8();
  if (!reader.ok() || head.from_slot < 0) return Malformed("data");
  body = reader.rest();
  return head;
}

void WriteReport(const RankReport& report, ByteWriter& writer) {
  writer.U8(static_cast<uint8_t>(report.state));
  writer.I64(report.wave);
  writer.I64(report.sent);
  writer.I64(report.received);
  writer.I64(report.waits);
  writer.Text(report.waiting_for);
}

absl::StatusOr<RankReport> ReadReport(std::string_view body) {
  ByteReader reader(body);
  RankReport report;
  report.state = static_cast<RankReport::State>(reader.U8());
  report.wave = reader.I64();
  report.sent = reader.I64();
  report.received = reader.I64();
  report.waits = reader.I64();
  report.waiting_for = reader.Text();
  if (!reader.AtEnd() || report.state > RankReport::State::kFinished) return Malformed("report");
  return report;
}

}  // namespace sumonce

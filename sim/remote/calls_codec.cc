#include "sim/remote/calls_codec.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/status.h"

namespace sumonce {
namespace {

constexpr size_t kCallsOfMessage = 4096;

std::string EncodeHead(const RankCalls& calls) {
  ByteWriter writer;
  writer.I64(calls.rank);
  writer.I64(calls.dropped);
  writer.I64(static_cast<int64_t>(calls.calls.size()));
  writer.I64(static_cast<int64_t>(calls.groups.size()));
  for (const RecordedGroup& group : calls.groups) {
    writer.Text(group.id);
    writer.Text(group.name);
    writer.I64(static_cast<int64_t>(group.world_ranks.size()));
    for (const int rank : group.world_ranks) writer.I64(rank);
  }
  return writer.Take();
}

// How many calls follow; -1: no head.
int64_t DecodeHead(const std::string& message, RankCalls& calls) {
  ByteReader reader(message);
  calls.rank = static_cast<int>(reader.I64());
  calls.dropped = reader.I64();
  const int64_t count = reader.I64();
  calls.groups.resize(reader.Count(3 * sizeof(int64_t)));
  for (RecordedGroup& group : calls.groups) {
    group.id = reader.Text();
    group.name = reader.Text();
    group.world_ranks.resize(reader.Count(sizeof(int64_t)));
    for (int& rank : group.world_ranks) rank = static_cast<int>(reader.I64());
  }
  return reader.AtEnd() && count >= 0 ? count : -1;
}

void Write(const RecordedCall& call, ByteWriter& writer) {
  writer.I64(call.group);
  writer.U8(static_cast<uint8_t>(call.kind));
  writer.Text(call.label);
  writer.I64(call.count);
  writer.I64(call.bytes);
  writer.U8(static_cast<uint8_t>(call.dtype));
  writer.U8(static_cast<uint8_t>(call.op));
  writer.I64(call.root);
  writer.I64(call.ordinal);
  writer.F64(call.start_us);
  writer.F64(call.end_us);
  writer.I64(call.started);
  writer.I64(call.ended);
  writer.I64(static_cast<int64_t>(call.status.code()));
  writer.Text(FromAbsl(call.status.message()));
}

bool Read(ByteReader& reader, size_t groups, RecordedCall& call) {
  call.group = static_cast<int>(reader.I64());
  call.kind = static_cast<CallKind>(reader.U8());
  call.label = reader.Text();
  call.count = reader.I64();
  call.bytes = reader.I64();
  call.dtype = static_cast<DType>(reader.U8());
  call.op = static_cast<ReduceOp>(reader.U8());
  call.root = static_cast<int>(reader.I64());
  call.ordinal = reader.I64();
  call.start_us = reader.F64();
  call.end_us = reader.F64();
  call.started = reader.I64();
  call.ended = reader.I64();
  const auto code = static_cast<absl::StatusCode>(reader.I64());
  call.status = absl::Status(code, reader.Text());
  return reader.ok() && call.group >= 0 && static_cast<size_t>(call.group) < groups &&
         call.kind <= CallKind::kSplit && call.op <= ReduceOp::kMax;
}

}  // namespace

absl::Status SendCalls(const RankCalls& calls,
                       const std::function<absl::Status(const std::string&)>& send) {
  SUMONCE_RETURN_IF_ERROR(send(EncodeHead(calls)));
  for (size_t begin = 0; begin < calls.calls.size(); begin += kCallsOfMessage) {
    const size_t end = std::min(begin + kCallsOfMessage, calls.calls.size());
    ByteWriter writer;
    for (size_t i = begin; i < end; ++i) Write(calls.calls[i], writer);
    SUMONCE_RETURN_IF_ERROR(send(writer.Take()));
  }
  return absl::OkStatus();
}

absl::Status ReceiveCalls(const std::function<absl::StatusOr<std::string>()>& receive,
                          RankCalls& calls) {
  const absl::Status unsound =
      absl::InternalError("recorded calls between processes that do not hold what they say");
  SUMONCE_ASSIGN_OR_RETURN(const std::string head, receive());
  const int64_t count = DecodeHead(head, calls);
  if (count < 0) return unsound;
  while (static_cast<int64_t>(calls.calls.size()) < count) {
    SUMONCE_ASSIGN_OR_RETURN(const std::string message, receive());
    ByteReader reader(message);
    if (message.empty()) return unsound;
    while (!reader.AtEnd()) {
      RecordedCall call;
      if (!Read(reader, calls.groups.size(), call)) return unsound;
      calls.calls.push_back(std::move(call));
    }
  }
  return static_cast<int64_t>(calls.calls.size()) == count ? absl::OkStatus() : unsound;
}

}  // namespace sumonce

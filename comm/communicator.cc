#include "comm/communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"

namespace sumonce {

std::string_view Name(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce:
      return "AllReduce";
    case CallKind::kReduceScatter:
      return "ReduceScatter";
    case CallKind::kAllGather:
      return "AllGather";
    case CallKind::kAllToAll:
      return "AllToAll";
    case CallKind::kBroadcast:
      return "Broadcast";
    case CallKind::kSend:
      return "Send";
    case CallKind::kRecv:
      return "Recv";
    case CallKind::kBarrier:
      return "Barrier";
    case CallKind::kSplit:
      return "Split";
  }
  return "unknown call";
}

std::string_view Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "SUM";
    case ReduceOp::kAvg:
      return "AVG";
    case ReduceOp::kMax:
      return "MAX";
  }
  return "unknown operation";
}

std::string Describe(const Call& call) {
  std::string text(Name(call.kind));
  if (HasReduceOp(call.kind)) absl::StrAppend(&text, " ", ToAbsl(Name(call.op)));
  if (HasPayload(call.kind)) {
    const Buffer& payload = Payload(call);
    absl::StrAppend(&text, " of ", payload.count, " ", ToAbsl(Name(payload.dtype)));
  }
  if (call.kind == CallKind::kBroadcast) absl::StrAppend(&text, " from root ", call.root);
  if (call.kind == CallKind::kSend) absl::StrAppend(&text, " to peer ", call.root);
  if (call.kind == CallKind::kRecv) absl::StrAppend(&text, " from peer ", call.root);
  if (!call.label.empty()) absl::StrAppend(&text, " (", call.label, ")");
  return text;
}

absl::Status Communicator::Run(Call call) {
  SUMONCE_ASSIGN_OR_RETURN(const std::unique_ptr<Work> work, Start(std::move(call)));
  return work->Wait();
}

absl::Status Communicator::AllReduce(Buffer in, Buffer out, ReduceOp op, std::string_view label) {
  return Run(
      {.kind = CallKind::kAllReduce, .in = in, .out = out, .op = op, .label = std::string(label)});
}

absl::Status Communicator::ReduceScatter(Buffer in, Buffer out, ReduceOp op,
                                         std::string_view label) {
  return Run({.kind = CallKind::kReduceScatter,
              .in = in,
              .out = out,
              .op = op,
              .label = std::string(label)});
}

absl::Status Communicator::AllGather(Buffer in, Buffer out, std::string_view label) {
  return Run({.kind = CallKind::kAllGather, .in = in, .out = out, .label = std::string(label)});
}

absl::Status Communicator::AllToAll(Buffer in, Buffer out, std::string_view label) {
  return Run({.kind = CallKind::kAllToAll, .in = in, .out = out, .label = std::string(label)});
}

absl::Status Communicator::Broadcast(Buffer in, Buffer out, int root, std::string_view label) {
  return Run({.kind = CallKind::kBroadcast,
              .in = in,
              .out = out,
              .root = root,
              .label = std::string(label)});
}

absl::Status Communicator::Send(Buffer in, int peer, std::string_view label) {
  return Run({.kind = CallKind::kSend, .in = in, .root = peer, .label = std::string(label)});
}

absl::Status Communicator::Recv(Buffer out, int peer, std::string_view label) {
  return Run({.kind = CallKind::kRecv, .out = out, .root = peer, .label = std::string(label)});
}

absl::Status Communicator::Barrier(std::string_view label) {
  return Run({.kind = CallKind::kBarrier, .label = std::string(label)});
}

}  // namespace sumonce

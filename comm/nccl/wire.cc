#include "comm/nccl/wire.h"

#include <cstring>

#include "base/status.h"
#include "comm/errors.h"

namespace sumonce::nccl {

Writer& Writer::Number(int64_t value) {
  message_.append(reinterpret_cast<const char*>(&value), sizeof value);
  return *this;
}

Writer& Writer::Text(const std::string& text) {
  Number(static_cast<int64_t>(text.size()));
  message_ += text;
  return *this;
}

Writer& Writer::Status(const absl::Status& status) {
  Number(static_cast<int64_t>(status.code()));
  Text(std::string(FromAbsl(status.message())));
  return Number(static_cast<int64_t>(KindOf(status)));
}

Writer& Writer::Header(const Call& call) {
  Number(static_cast<int64_t>(call.kind)).Number(static_cast<int64_t>(call.op)).Number(call.root);
  for (const Buffer* buffer : {&call.in, &call.out})
    Number(buffer->count).Number(static_cast<int64_t>(buffer->dtype));
  return Text(call.label);
}

int64_t Reader::Number() {
  int64_t value = 0;
  ok_ = ok_ && message_.size() - next_ >= sizeof value;
  if (!ok_) return 0;
  std::memcpy(&value, message_.data() + next_, sizeof value);
  next_ += sizeof value;
  return value;
}

std::string Reader::Text() {
  const int64_t size = Number();
  ok_ = ok_ && size >= 0 && static_cast<uint64_t>(size) <= message_.size() - next_;
  if (!ok_) return "";
  next_ += size;
  return message_.substr(next_ - size, size);
}

absl::Status Reader::Status() {
  const auto code = static_cast<absl::StatusCode>(Number());
  const std::string text = Text();
  switch (static_cast<RunFailure>(Number())) {
    case RunFailure::kCollectiveMismatch:
      return CollectiveMismatchError(text);
    case RunFailure::kDeadlock:
      return DeadlockError(text);
    case RunFailure::kRankLost:
      return RankLostError(text);
    case RunFailure::kNone:
      break;
  }
  return absl::Status(code, text);
}

Call Reader::Header() {
  Call call;
  call.kind = static_cast<CallKind>(Number());
  call.op = static_cast<ReduceOp>(Number());
  call.root = static_cast<int>(Number());
  for (Buffer* buffer : {&call.in, &call.out}) {
    buffer->count = Number();
    buffer->dtype = static_cast<DType>(Number());
  }
  call.label = Text();
  return call;
}

}  // namespace sumonce::nccl

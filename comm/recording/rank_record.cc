#include "comm/recording/rank_record.h"

#include <utility>

#include "comm/call_check.h"

namespace sumonce {
namespace {

constexpr int64_t kDropped = -1;

}  // namespace

RankRecord::RankRecord(CallRecorder& recorder, int rank)
    : recorder_(recorder), calls_(recorder.ranks_[rank]) {}

int RankRecord::AddGroup(RecordedGroup group) {
  calls_.groups.push_back(std::move(group));
  return static_cast<int>(calls_.groups.size()) - 1;
}

RankRecord::Sequence RankRecord::SequenceOf(int group, const Call& call) {
  const bool sends = call.kind == CallKind::kSend;
  return sends || call.kind == CallKind::kRecv ? Sequence(group, call.root, sends)
                                               : Sequence(group, -1, false);
}

int64_t RankRecord::Begin(int group, const Call& call) {
  const int64_t ordinal = made_[SequenceOf(group, call)]++;
  if (static_cast<int64_t>(calls_.calls.size()) >= recorder_.max_calls_per_rank_) {
    ++calls_.dropped;
    return kDropped;
  }
  RecordedCall& recorded = calls_.calls.emplace_back();
  recorded.group = group;
  recorded.kind = call.kind;
  recorded.label = call.label;
  if (HasPayload(call.kind)) {
    recorded.count = Payload(call).count;
    recorded.bytes = Payload(call).bytes();
    recorded.dtype = Payload(call).dtype;
  }
  recorded.op = call.op;
  recorded.root = call.root;
  recorded.ordinal = ordinal;
  recorded.started = recorder_.position_++;
  recorded.start_us = recorder_.now_us_() - recorder_.begin_us_;
  return static_cast<int64_t>(calls_.calls.size()) - 1;
}

void RankRecord::End(int64_t token, absl::Status status) {
  if (token == kDropped) return;
  RecordedCall& recorded = calls_.calls[token];
  recorded.end_us = recorder_.now_us_() - recorder_.begin_us_;
  recorded.ended = recorder_.position_++;
  recorded.status = std::move(status);
}

void RankRecord::Refuse(int64_t token, int group, const Call& call, absl::Status status) {
  --made_[SequenceOf(group, call)];
  if (token != kDropped) calls_.calls[token].ordinal = -1;
  End(token, std::move(status));
}

int64_t RankRecord::collectives(int group) const {
  const auto found = made_.find(Sequence(group, -1, false));
  return found == made_.end() ? 0 : found->second;
}

}  // namespace sumonce

#include "comm/recording/recording_communicator.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {
namespace {

class RecordedWork : public Work {
 public:
  RecordedWork(std::unique_ptr<Work> inner, std::shared_ptr<RankRecord> record, int64_t token)
      : inner_(std::move(inner)), record_(std::move(record)), token_(token) {}

  ~RecordedWork() override {
    if (waited_) return;
    inner_.reset();  // may still move data
    record_->End(token_, absl::CancelledError("given up without waiting"));
  }

  absl::Status Wait() override {
    absl::Status status = inner_->Wait();
    if (!waited_) record_->End(token_, status);
    waited_ = true;
    return status;
  }

 private:
  std::unique_ptr<Work> inner_;
  std::shared_ptr<RankRecord> record_;
  int64_t token_;
  bool waited_ = false;
};

// The members' world ranks, which the interface of a communicator does not tell.
absl::StatusOr<std::vector<int>> Members(Communicator& group, int world_rank) {
  int32_t mine = world_rank;
  std::vector<int32_t> all(group.size());
  SUMONCE_RETURN_IF_ERROR(group.AllGather(
      {&mine, 1, DType::kInt32}, {all.data(), static_cast<int64_t>(all.size()), DType::kInt32},
      "recording: members of the new group"));
  return std::vector<int>(all.begin(), all.end());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Work>> RecordingCommunicator::Start(Call call) {
  const int64_t token = record_->Begin(group_, call);
  absl::StatusOr<std::unique_ptr<Work>> work = inner_.Start(call);
  if (!work.ok()) {
    record_->Refuse(token, group_, call, work.status());
    return work.status();
  }
  return std::make_unique<RecordedWork>(*std::move(work), record_, token);
}

absl::StatusOr<std::unique_ptr<Communicator>> RecordingCommunicator::Split(int color, int key,
                                                                           std::string_view label) {
  Call call;
  call.kind = CallKind::kSplit;
  call.label = std::string(label);
  const int64_t ordinal = record_->collectives(group_);
  const int64_t token = record_->Begin(group_, call);
  absl::StatusOr<std::unique_ptr<Communicator>> part = inner_.Split(color, key, label);
  record_->End(token, part.status());
  if (!part.ok() || *part == nullptr) return part;
  SUMONCE_ASSIGN_OR_RETURN(std::vector<int> members, Members(**part, record_->rank()));
  const int first = *std::min_element(members.begin(), members.end());
  const int group =
      record_->AddGroup({.id = absl::StrCat(record_->group(group_).id, "/", ordinal, ".", first),
                         .name = std::string(label),
                         .world_ranks = std::move(members)});
  Communicator& inner = **part;
  return std::make_unique<RecordingCommunicator>(inner, *std::move(part), record_, group);
}

CallRecorder::CallRecorder(int world_size, RecorderOptions options)
    : ranks_(world_size),
      now_us_(std::move(options.now_us)),
      begin_us_(options.begin_us ? *options.begin_us : now_us_()),
      max_calls_per_rank_(std::max<int64_t>(options.max_calls / world_size, 1)) {
  for (int rank = 0; rank < world_size; ++rank) ranks_[rank].rank = rank;
}

std::unique_ptr<Communicator> CallRecorder::Wrap(Communicator& world) {
  auto record = std::make_shared<RankRecord>(*this, world.rank());
  std::vector<int> everyone(world.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  const int group =
      record->AddGroup({.id = "world", .name = "world", .world_ranks = std::move(everyone)});
  return std::make_unique<RecordingCommunicator>(world, nullptr, std::move(record), group);
}

}  // namespace sumonce

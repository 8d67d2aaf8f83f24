// The wrapper that notes each call and passes it on unchanged (comm/recording.h).
#pragma once

#include <memory>
#include <string_view>

#include "comm/communicator.h"
#include "comm/recording/rank_record.h"

namespace sumonce {

class RecordingCommunicator : public Communicator {
 public:
  // `group`: index into the record's groups. Owns `owned`, if any; else `inner` outlives it.
  RecordingCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned,
                        std::shared_ptr<RankRecord> record, int group)
      : owned_(std::move(owned)), inner_(inner), record_(std::move(record)), group_(group) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Properties properties() const override { return inner_.properties(); }
  absl::StatusOr<std::unique_ptr<Work>> Start(Call call) override;
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                      std::string_view label) override;
  void Abort(absl::Status status) override { inner_.Abort(std::move(status)); }

 private:
  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  std::shared_ptr<RankRecord> record_;
  int group_;
};

}  // namespace sumonce

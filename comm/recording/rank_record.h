// One rank's part of a recording, shared by the wrappers of all its groups. Only that rank uses it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "comm/recording.h"

namespace sumonce {

class RankRecord {
 public:
  RankRecord(CallRecorder& recorder, int rank);

  int rank() const { return calls_.rank; }
  // Returns the group's index.
  int AddGroup(RecordedGroup group);
  const RecordedGroup& group(int index) const { return calls_.groups[index]; }

  // Notes that a call begins; the token is for End. Numbers it among its kind on this group.
  int64_t Begin(int group, const Call& call);
  void End(int64_t token, absl::Status status);
  // The call was refused by Start: it was not made, and takes no number.
  void Refuse(int64_t token, int group, const Call& call, absl::Status status);
  // Collectives begun on this group so far.
  int64_t collectives(int group) const;

 private:
  // (group, peer, sends); collectives: peer -1.
  using Sequence = std::tuple<int, int, bool>;
  static Sequence SequenceOf(int group, const Call& call);

  CallRecorder& recorder_;
  RankCalls& calls_;
  std::map<Sequence, int64_t> made_;
};

}  // namespace sumonce

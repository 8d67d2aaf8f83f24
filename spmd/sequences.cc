#include "spmd/sequences.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce {

std::vector<TokenRange> SequencesOf(const SequenceStarts& starts, int64_t tokens) {
  if (starts.empty()) return {{0, tokens}};
  std::vector<TokenRange> sequences;
  for (size_t i = 0; i < starts.size(); ++i)
    sequences.push_back({starts[i], i + 1 < starts.size() ? starts[i + 1] : tokens});
  return sequences;
}

std::vector<int64_t> BeginOfEach(const SequenceStarts& starts, int64_t tokens) {
  std::vector<int64_t> begins;
  for (const TokenRange& sequence : SequencesOf(starts, tokens))
    begins.insert(begins.end(), sequence.end - sequence.begin, sequence.begin);
  return begins;
}

absl::Status CheckStarts(std::string_view operation, const SequenceStarts& starts, int64_t tokens) {
  bool sound = starts.empty() || (starts.front() == 0 && starts.back() < tokens);
  for (size_t i = 1; i < starts.size(); ++i) sound = sound && starts[i - 1] < starts[i];
  if (sound) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(operation), ": sequences begin at ", absl::StrJoin(starts, ", "),
                   ", expected ascending tokens from 0, all below ", tokens));
}

}  // namespace sumonce

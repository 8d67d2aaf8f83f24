// Packed sequences: several of them one behind the other along the token dimension, as
// cu_seqlens names them. Attention, convolution and recurrence begin anew at each.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace sumonce {

// Where each sequence begins, ascending, the first 0. Empty: one sequence.
using SequenceStarts = std::vector<int64_t>;

struct TokenRange {
  int64_t begin = 0, end = 0;
};

// The sequences of `tokens` tokens.
std::vector<TokenRange> SequencesOf(const SequenceStarts& starts, int64_t tokens);

// For each token, where its sequence begins.
std::vector<int64_t> BeginOfEach(const SequenceStarts& starts, int64_t tokens);

// InvalidArgument, naming `operation`, unless the starts ascend from 0 and end before `tokens`.
absl::Status CheckStarts(std::string_view operation, const SequenceStarts& starts, int64_t tokens);

}  // namespace sumonce

// Ranks in messages.
#pragma once

#include <span>
#include <string>

namespace sumonce {

// "0 1 2"; of more than 16 the first 15, dots, and the last: "0 1 ... 14 ... 63".
std::string JoinRanks(std::span<const int> ranks);
// "rank 3", "ranks 0 1 2".
std::string RanksInWords(std::span<const int> ranks);

}  // namespace sumonce

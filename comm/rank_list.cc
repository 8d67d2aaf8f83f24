#include "comm/rank_list.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sumonce {

std::string JoinRanks(std::span<const int> ranks) {
  constexpr size_t kMaxListed = 16;
  if (ranks.size() <= kMaxListed) return absl::StrJoin(ranks, " ");
  return absl::StrCat(absl::StrJoin(ranks.first(kMaxListed - 1), " "), " ... ", ranks.back());
}

std::string RanksInWords(std::span<const int> ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", JoinRanks(ranks));
}

}  // namespace sumonce

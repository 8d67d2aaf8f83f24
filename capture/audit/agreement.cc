#include "capture/audit/agreement.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "capture/same_run.h"

namespace sumonce::capture {
namespace {

// With a distributed optimizer a file may hold what its rank owns, and nothing else.
bool OwnsNothing(const Step& step, int rank, const ParamGeometry& geometry) {
  const auto& owned = step.Identity(rank).owned;
  return owned && std::none_of(geometry.names.begin(), geometry.names.end(),
                               [&](const std::string& name) { return owned->contains(name); });
}

// By rank, the tensors that its file should hold and does not.
class Lacking {
 public:
  explicit Lacking(const Step& step) : step_(step) {
    if (step.KindNumber(finalized_) >= 0) return;
    finalized_ = "probe_finalized";
    contribution_ = "probe_contribution";
  }

  void Look(const ParamGeometry& geometry) {
    if (!geometry.conflict.empty()) return;
    const int kind = step_.KindNumber(contribution_);
    const auto contributes = [&](const Holder& holder) {
      return holder.present() && step_.Find(holder.rank, holder.param, kind).present();
    };
    const bool contributions =
        std::any_of(geometry.holders.begin(), geometry.holders.end(), contributes);
    for (const Holder& holder : geometry.holders) {
      if (holder.rank < 0) continue;
      if (!holder.present()) {
        if (!OwnsNothing(step_, holder.rank, geometry))
          names_[holder.rank].push_back(absl::StrCat(finalized_, "/", geometry.name()));
      } else if (contributions && !contributes(holder)) {
        names_[holder.rank].push_back(
            absl::StrCat(contribution_, "/", step_.params()[holder.param]));
      }
    }
  }

  void Tell(std::vector<std::string>& texts) const {
    for (const auto& [rank, names] : names_) {
      texts.push_back(absl::StrCat(
          step_.Identity(rank).path, ": lacks ", names.front(),
          names.size() > 1 ? absl::StrCat(" and ", names.size() - 1, " more tensors") : "",
          ", which its peers' files hold; capture the same parameters on every rank"));
    }
  }

 private:
  const Step& step_;
  std::string finalized_ = "finalized", contribution_ = "contribution";
  std::map<int, std::vector<std::string>> names_;
};

// The first rank and the first that says something else.
template <typename Of>
std::optional<std::pair<int, int>> FirstApart(const Step& step, const Of& of) {
  const int first = step.ranks().front();
  for (const int rank : step.ranks()) {
    if (of(rank) != of(first)) return std::pair(first, rank);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> DisagreementsOf(const Step& step,
                                         const std::vector<ParamGeometry>& geometries) {
  std::vector<std::string> texts;
  Lacking lacking(step);
  for (const ParamGeometry& geometry : geometries) lacking.Look(geometry);
  lacking.Tell(texts);
  const auto tokens = [&](int rank) { return step.Identity(rank).tokens.global; };
  if (const auto apart = FirstApart(step, tokens)) {
    const auto [first, other] = *apart;
    const auto text = [&](int rank) {
      return tokens(rank) ? absl::StrCat(*tokens(rank)) : std::string("none");
    };
    texts.push_back(absl::StrCat(step.Identity(other).path, ": tokens.global is ", text(other),
                                 ", and ", text(first), " on rank ", first,
                                 "; all ranks divide by one number, the tokens of all of them"));
  }
  const auto owned = [&](int rank) { return step.Identity(rank).owned.has_value(); };
  if (const auto apart = FirstApart(step, owned)) {
    const auto [with, without] =
        owned(apart->first) ? *apart : std::pair(apart->second, apart->first);
    texts.push_back(absl::StrCat(step.Identity(without).path,
                                 ": does not say what it owns (`owned`), rank ", with,
                                 " does; write it on all ranks or on none"));
  }
  return texts;
}

std::string UnownedText(const Step& step, const ParamGeometry& geometry, int64_t elements) {
  const int data = geometry.data;
  for (int group = 0; group < geometry.count(); group += data) {
    std::vector<std::pair<int64_t, int64_t>> ranges;
    std::vector<int> ranks;
    for (int h = group; h < group + data; ++h) {
      const Holder& holder = geometry.holders[h];
      if (!holder.present()) return "";
      ranks.push_back(holder.rank);
      const auto& owned = step.Identity(holder.rank).owned;
      if (!owned) return "";
      const auto range = owned->find(step.params()[holder.param]);
      if (range != owned->end()) ranges.emplace_back(range->second.begin, range->second.end);
    }
    std::sort(ranges.begin(), ranges.end());
    int64_t covered = 0;
    for (const auto& [begin, end] : ranges) {
      if (begin > covered) break;
      covered = std::max(covered, end);
    }
    if (covered >= elements) continue;
    const auto next = std::find_if(ranges.begin(), ranges.end(),
                                   [&](const auto& range) { return range.first > covered; });
    const int64_t end = next == ranges.end() ? elements : std::min(next->first, elements);
    std::sort(ranks.begin(), ranks.end());
    return absl::StrCat("elements [", covered, ", ", end, ") of ", elements,
                        " are owned by none of ranks ", RanksText(ranks),
                        " (`owned`): nobody reduces or updates them");
  }
  return "";
}

}  // namespace sumonce::capture

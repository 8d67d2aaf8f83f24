#include "report/trace_layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "comm/rank_list.h"

namespace sumonce {
namespace {

constexpr double kNanosecond_us = 0.001;

bool PeerToPeer(const RecordedCall& call) {
  return call.kind == CallKind::kSend || call.kind == CallKind::kRecv;
}

// One call, whichever rank looks at it: the group, from and to (in the group; -1: a collective),
// and the number among those.
using CallKey = std::tuple<std::string, int, int, int64_t>;

CallKey KeyOf(const RecordedCall& call, const RecordedGroup& group, int world_rank) {
  if (!PeerToPeer(call)) return {group.id, -1, -1, call.ordinal};
  const auto at = std::find(group.world_ranks.begin(), group.world_ranks.end(), world_rank);
  const int own = static_cast<int>(at - group.world_ranks.begin());
  return call.kind == CallKind::kSend ? CallKey(group.id, own, call.root, call.ordinal)
                                      : CallKey(group.id, call.root, own, call.ordinal);
}

class Layer {
 public:
  explicit Layer(const std::vector<RankCalls>& ranks) : ranks_(ranks) {}

  TraceLayout Run() {
    layout_.tracks.resize(ranks_.size());
    for (size_t rank = 0; rank < ranks_.size(); ++rank) Place(static_cast<int>(rank));
    for (const auto& [key, parts] : parts_) Connect(parts);
    return std::move(layout_);
  }

 private:
  struct Part {
    FlowPoint point;
    const RecordedCall* call = nullptr;
  };

  void Place(int rank) {
    const RankCalls& own = ranks_[rank];
    std::map<int, std::vector<std::pair<int, double>>> lanes;  // by group: (track, its last end)
    for (const RecordedCall& call : own.calls) {
      const RecordedGroup& group = own.groups[call.group];
      const int track = TrackFor(rank, group, call, lanes[call.group]);
      layout_.slices.push_back({rank, track, &call});
      layout_.end_us = std::max(layout_.end_us, call.start_us + DurationOf(call));
      if (call.ordinal < 0) continue;
      const double at_us = call.kind == CallKind::kRecv
                               ? call.start_us + DurationOf(call) - kNanosecond_us
                               : call.start_us;
      parts_[KeyOf(call, group, own.rank)].push_back({{rank, track, at_us}, &call});
    }
  }

  // The first track of the group on which nothing is under way.
  int TrackFor(int rank, const RecordedGroup& group, const RecordedCall& call,
               std::vector<std::pair<int, double>>& lanes) {
    const double end_us = call.start_us + DurationOf(call);
    for (auto& [track, last_us] : lanes) {
      if (last_us > call.start_us) continue;
      last_us = end_us;
      return track;
    }
    std::string name = absl::StrCat(group.name, " [", JoinRanks(group.world_ranks), "]");
    if (!lanes.empty()) absl::StrAppend(&name, " #", lanes.size() + 1);
    layout_.tracks[rank].push_back(std::move(name));
    lanes.push_back({static_cast<int>(layout_.tracks[rank].size()) - 1, end_us});
    return lanes.back().first;
  }

  void Connect(std::vector<Part> parts) {
    if (parts.size() < 2) return;
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return std::tie(a.point.at_us, a.call->started) < std::tie(b.point.at_us, b.call->started);
    });
    TraceFlow flow{.name = std::string(Name(parts[0].call->kind)), .points = {}};
    for (const Part& part : parts) flow.points.push_back(part.point);
    layout_.flows.push_back(std::move(flow));
  }

  const std::vector<RankCalls>& ranks_;
  std::map<CallKey, std::vector<Part>> parts_;
  TraceLayout layout_;
};

}  // namespace

double DurationOf(const RecordedCall& call) {
  return std::max(call.end_us - call.start_us, kNanosecond_us);
}

TraceLayout LayOut(const std::vector<RankCalls>& ranks) { return Layer(ranks).Run(); }

}  // namespace sumonce

// One direction of one communication runs another map: dropped (identity), swapped, summed where it
// should be scattered.
#include "base/text.h"
#include "sim/defects/effect.h"

namespace sumonce {
namespace {

class CollectiveEffect : public Effect {
 public:
  CollectiveEffect(CollectiveEdit edit, int rank) : edit_(std::move(edit)), rank_(rank) {}

  void OnCollective(const std::string& name, Collective& collective) override {
    if (!ActsOn(edit_.ranks, rank_) || !GlobMatches(edit_.operation, name)) return;
    MapArgs& changed =
        edit_.direction == Direction::kForward ? collective.forward : collective.backward;
    const MapArgs& other =
        edit_.direction == Direction::kForward ? collective.backward : collective.forward;
    // The dimension: the map's own, or its partner's where it had none (an all-reduce becomes a
    // reduce-scatter).
    const bool along = changed.map != Map::kIdentity && changed.map != Map::kSum;
    const MapArgs edited = {
        .map = edit_.map, .dim = along ? changed.dim : other.dim, .other_dim = changed.other_dim};
    if (SameCall(edited, changed, collective.group)) return;
    if (rank_ == kProver && !edit_.ranks.empty()) {
      differ_ = true;
    } else {
      changed = edited;
    }
  }

  std::string Unprovable() override {
    return differ_ ? "the ranks do not make the same calls at " + edit_.operation : "";
  }

 private:
  // Whether nothing changes: the map that it has already, or any on a group of one rank.
  static bool SameCall(const MapArgs& a, const MapArgs& b, const Group& group) {
    const auto reads_dim = [](Map map) {
      return map == Map::kReduceScatter || map == Map::kAllGather || map == Map::kSplit ||
             map == Map::kPad || map == Map::kAllToAll;
    };
    if (a.map == b.map) return !reads_dim(a.map) || a.dim == b.dim;
    return group.atomic.empty() && a.map != Map::kStop && b.map != Map::kStop;
  }

  CollectiveEdit edit_;
  int rank_;
  bool differ_ = false;  // seen by the prover: an edit of some ranks that changes their calls
};

}  // namespace

std::unique_ptr<Effect> MakeEffect(const CollectiveEdit& edit, int rank) {
  return std::make_unique<CollectiveEffect>(edit, rank);
}

}  // namespace sumonce

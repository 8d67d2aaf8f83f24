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
    changed = {
        .map = edit_.map, .dim = along ? changed.dim : other.dim, .other_dim = changed.other_dim};
  }

  std::string Unprovable() override {
    return edit_.ranks.empty() ? "" : "the ranks do not make the same calls at " + edit_.operation;
  }

 private:
  CollectiveEdit edit_;
  int rank_;
};

}  // namespace

std::unique_ptr<Effect> MakeEffect(const CollectiveEdit& edit, int rank) {
  return std::make_unique<CollectiveEffect>(edit, rank);
}

}  // namespace sumonce

// One direction of one communication runs another map: dropped (identity), swapped, summed where it
// should be scattered.
#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "sim/defects/effect.h"

namespace sumonce {
namespace {

constexpr char kUnlike[] = "some ranks do otherwise here";

// Of a group's ranks, and of the world's: all are named, none is, or some are.
enum class Named : uint8_t { kNone, kSome, kAll };

Named AmongThese(const std::vector<int>& named, const std::vector<int>& ranks) {
  const auto count =
      std::count_if(ranks.begin(), ranks.end(), [&](int rank) { return ActsOn(named, rank); });
  if (count == 0) return Named::kNone;
  return count == static_cast<int64_t>(ranks.size()) ? Named::kAll : Named::kSome;
}

Named InWorld(const std::vector<int>& named, const Mesh& mesh) {
  std::vector<int> world(mesh.world_size());
  std::iota(world.begin(), world.end(), 0);
  return AmongThese(named, world);
}

// Whether some group has ranks that are named and ranks that are not.
bool DivideAGroup(const std::vector<int>& named, const Group& group, const Mesh& mesh) {
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    if (AmongThese(named, mesh.Ranks(group, rank)) == Named::kSome) return true;
  }
  return false;
}

// Whether ranks of a group that run the one and the other still make the same calls: none.
bool MakesNoCall(Map map) {
  return map == Map::kIdentity || map == Map::kSplit || map == Map::kPad || map == Map::kOwn;
}

class CollectiveEffect : public Effect {
 public:
  CollectiveEffect(CollectiveEdit edit, int rank) : edit_(std::move(edit)), rank_(rank) {}

  void OnCollective(const std::string& name, const Mesh& mesh, Collective& collective) override {
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
    if (rank_ != kProver || InWorld(edit_.ranks, mesh) == Named::kAll) {
      changed = edited;
    } else {
      DoneBySome(edited.map, changed.map, mesh, collective);
    }
  }

  std::string Unprovable() override {
    return differ_ ? "the ranks do not make the same calls at " + edit_.operation : "";
  }

 private:
  // The prover's: where every group is of one mind the calls meet, and what they give is unknown;
  // elsewhere the run does not end.
  void DoneBySome(Map edited, Map original, const Mesh& mesh, Collective& collective) {
    const bool calls = !MakesNoCall(edited) || !MakesNoCall(original);
    if (calls && DivideAGroup(edit_.ranks, collective.group, mesh)) {
      differ_ = true;
    } else if (edit_.direction == Direction::kForward) {
      collective.forward_unknown = kUnlike;
    } else {
      collective.backward_unknown = kUnlike;
    }
  }

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
  bool differ_ = false;  // seen by the prover: ranks of one group that make other calls
};

}  // namespace

std::unique_ptr<Effect> MakeEffect(const CollectiveEdit& edit, int rank) {
  return std::make_unique<CollectiveEffect>(edit, rank);
}

}  // namespace sumonce

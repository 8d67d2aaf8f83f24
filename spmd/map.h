// The one table of communications (docs/THEORY.md "Maps"): every collective of a forward pass, a
// backward pass or a finalizer is a linear map along one mesh axis, and this says what it does to a
// state. Used by both directions of the abstract tape and by the finalizer's rules.
#pragma once

#include <span>
#include <string_view>

#include "comm/mesh.h"
#include "spmd/state.h"

namespace sumonce {

enum class Map : uint8_t {
  kIdentity,
  kSum,            // all-reduce
  kAvg,            // all-reduce, divided by the group's size
  kReduceScatter,  // along dim
  kAllGather,      // along dim
  kSplit,          // own slice along dim
  kPad,       // own slice along dim in its place, zeros elsewhere: the transpose of kSplit on a
              // replicated value
  kAllToAll,  // cut along dim -> cut along other_dim
  kOwn,       // keep on the group's first rank, zeros elsewhere
  kMax,       // all-reduce MAX, of constants only; X -> E, E -> E
  kStop,      // backward only: no gradient flows
};
std::string_view Name(Map map);  // "identity", "sum", ...

struct MapArgs {
  Map map = Map::kIdentity;
  Dim dim = Dim::kSequence;        // kReduceScatter, kAllGather, kSplit, kPad, kAllToAll
  Dim other_dim = Dim::kSequence;  // kAllToAll
};

// The state after `args.map` along every atomic axis of `group` that is active: slicing maps take
// the slow axis first, joining maps the fast one first. An entry of the table that is no state
// gives `lost` with its reason. `operation` is recorded in a new fault. A lost state stays lost; an
// off one stays off with the layout moved.
State Apply(const MapArgs& args, const Group& group, State state, int operation);

// times mu: any layout, scale multiplied.
State Apply(const Scale& mu, State state);

// Two gradients of one value meet (several uses, microbatches, paths). Equal layouts and scales:
// that, `why` united. E(l) with P(n*l): P. E with another P: lost, kMixedUse. Equal layouts,
// different scales: lost, kSumOfPaths. Different shards: lost.
State Join(const State& a, const State& b, int operation);

inline constexpr char kMixedUse[] = "mixed use: a complete and a partial gradient meet";
inline constexpr char kSumOfPaths[] = "paths with different factors meet";

}  // namespace sumonce

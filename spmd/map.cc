#include "spmd/map.h"

#include <algorithm>

#include "base/status.h"

namespace sumonce {
namespace {

// How many other axes cut `dim`: the order of a new, innermost cut.
int CutsOf(const State& state, Dim dim) {
  int cuts = 0;
  for (const AxisState& axis : state.axes) cuts += axis.layout == Layout::kShard && axis.dim == dim;
  return cuts;
}

bool InnermostCut(const State& state, const AxisState& axis) {
  return axis.order == CutsOf(state, axis.dim) - 1;
}

State& Lose(State& state, const char* reason, int operation) {
  state.lost = {reason, operation};
  return state;
}

void GatherAxis(const MapArgs& args, AxisState& axis, State& state, int operation) {
  if (axis.layout == Layout::kEqual) {
    Lose(state, "all-gather of equal copies lays them side by side", operation);
  } else if (axis.layout == Layout::kPartial) {
    Lose(state, "all-gather of partial terms: they are not summed", operation);
  } else if (axis.layout != Layout::kShard) {
    Lose(state, "all-gather of mixed shards", operation);
  } else if (axis.dim != args.dim || !InnermostCut(state, axis)) {
    Lose(state, "all-gather along a dimension that this axis does not cut", operation);
  } else {
    axis = Equal();
  }
}

// One atomic axis. The rows and columns of docs/THEORY.md "Maps".
void ApplyAxis(const MapArgs& args, int a, State& state, int operation) {
  AxisState& axis = state[a];
  const Scale n = Scale::SizeOfAxis(a);
  if (axis.layout == Layout::kMaxima && args.map != Map::kIdentity && args.map != Map::kMax) {
    Lose(state, "each rank's maximum of its slice meets what is no all-reduce MAX", operation);
    return;
  }
  switch (args.map) {
    case Map::kIdentity:
      return;
    case Map::kSum:
    case Map::kAvg:
      if (axis.layout == Layout::kEqual || axis.layout == Layout::kMixed)
        state.scale = state.scale * n;
      if (axis.layout == Layout::kPartial) axis = Equal();
      if (axis.layout == Layout::kShard) axis = Mixed();
      if (args.map == Map::kAvg) state.scale = state.scale * n.Inverse();
      return;
    case Map::kReduceScatter:
      if (axis.layout == Layout::kEqual) {
        state.scale = state.scale * n;
      } else if (axis.layout != Layout::kPartial) {
        Lose(state, "reduce-scatter of different slices", operation);
        return;
      }
      axis = Shard(args.dim, CutsOf(state, args.dim));
      return;
    case Map::kAllGather:
      GatherAxis(args, axis, state, operation);
      return;
    case Map::kSplit:
      if (axis.layout == Layout::kPartial) {
        Lose(state, "own slice of partial terms: the other ranks' terms are lost", operation);
      } else if (axis.layout != Layout::kEqual) {
        Lose(state, "own slice of a shard", operation);
      } else {
        axis = Shard(args.dim, CutsOf(state, args.dim));
      }
      return;
    case Map::kPad:
      if (axis.layout != Layout::kShard || axis.dim != args.dim || !InnermostCut(state, axis)) {
        Lose(state, "padding of what is no slice along this dimension", operation);
      } else {
        axis = Partial(SetOf(args.dim));
      }
      return;
    case Map::kAllToAll:
      if (axis.layout != Layout::kShard || axis.dim != args.dim || !InnermostCut(state, axis)) {
        Lose(state, "all-to-all of what is no slice along this dimension", operation);
      } else {
        axis = Equal();
        axis = Shard(args.other_dim, CutsOf(state, args.other_dim));
      }
      return;
    case Map::kOwn:
      if (axis.layout == Layout::kEqual) {
        axis = Partial(0);
      } else {
        Lose(state, "one rank's copy of what differs between ranks", operation);
      }
      return;
    case Map::kMax:
      // Under a negative factor the maximum would be a minimum: only unscaled maxima are claimed.
      if (axis.layout == Layout::kMaxima && state.scale.IsOne()) axis = Equal();
      if (axis.layout != Layout::kEqual)
        Lose(state, "all-reduce MAX of what are no maxima of slices", operation);
      return;
    case Map::kStop:
      SUMONCE_CHECK(false) << "a stopped gradient has no state";
  }
}

bool Joins(Map map) { return map == Map::kAllGather || map == Map::kAllToAll || map == Map::kPad; }

}  // namespace

std::string_view Name(Map map) {
  static constexpr std::string_view kNames[] = {"identity",   "sum",   "avg", "reduce_scatter",
                                                "all_gather", "split", "pad", "all_to_all",
                                                "own",        "max",   "stop"};
  return kNames[static_cast<int>(map)];
}

State Apply(const MapArgs& args, const Group& group, State state, int operation) {
  std::vector<int> order = group.atomic;
  if (Joins(args.map)) std::reverse(order.begin(), order.end());
  for (int a : order) {
    if (state.lost) return state;
    ApplyAxis(args, a, state, operation);
  }
  return state;
}

State Apply(const Scale& mu, State state) {
  state.scale = state.scale * mu;
  return state;
}

State Join(const State& a, const State& b, int operation) {
  if (a.lost) return a;
  if (b.lost) return b;
  State joined = a;
  if (!joined.off) joined.off = b.off;
  Scale scale_a = a.scale;
  Scale scale_b = b.scale;
  bool mixed = false;
  for (int i = 0; i < kMaxAtomicAxes; ++i) {
    const AxisState& x = a[i];
    const AxisState& y = b[i];
    if (x.layout == y.layout && x.layout != Layout::kPartial) {
      if (x.layout == Layout::kShard && !(x == y))
        return Lose(joined, "gradients cut along different dimensions meet", operation);
      continue;
    }
    const bool partial_x = x.layout == Layout::kPartial;
    const bool partial_y = y.layout == Layout::kPartial;
    if (!(partial_x || x.layout == Layout::kEqual) || !(partial_y || y.layout == Layout::kEqual)) {
      return Lose(joined, "a shard meets what is not cut", operation);
    }
    joined[i] = Partial(x.why | y.why);
    // Read the equal side as a partial one with equal terms.
    if (!partial_x) scale_a = scale_a * Scale::SizeOfAxis(i);
    if (!partial_y) scale_b = scale_b * Scale::SizeOfAxis(i);
    mixed |= partial_x != partial_y;
  }
  if (!(scale_a == scale_b)) return Lose(joined, mixed ? kMixedUse : kSumOfPaths, operation);
  joined.scale = scale_a;
  return joined;
}

}  // namespace sumonce

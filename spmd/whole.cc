#include "spmd/whole.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/status.h"

namespace sumonce {
namespace {

// Reduces one atomic axis of the world: `arrays` holds an entry for every rank whose coordinates
// along the axes already reduced are 0; others are empty.
bool ReduceAxis(const AxisState& state, const AtomicAxis& axis, std::vector<Tensor>& arrays,
                double& spread) {
  for (size_t rank = 0; rank < arrays.size(); ++rank) {
    const bool first = (static_cast<int>(rank) / axis.stride) % axis.size == 0;
    if (!first || arrays[rank].empty()) continue;
    std::vector<Tensor> line;
    for (int k = 0; k < axis.size; ++k)
      line.push_back(arrays[rank + static_cast<size_t>(k) * axis.stride]);
    for (const Tensor& tensor : line) {
      if (tensor.empty() || tensor.count() != line[0].count()) return false;
    }
    Tensor& result = arrays[rank];
    if (state.layout == Layout::kShard) {
      if (Find(line[0].dims(), state.dim) < 0) return false;
      result = JoinUnits(line, state.dim);
      continue;
    }
    if (state.layout == Layout::kPartial) result = line[0].Clone();
    for (int k = 1; k < axis.size; ++k) {
      if (state.layout == Layout::kPartial) {
        AddInto(result, line[k]);
        continue;
      }
      for (int64_t i = 0; i < result.count(); ++i) {
        const double difference = std::fabs(result.data()[i] - line[k].data()[i]);
        spread = std::isnan(difference) ? INFINITY : std::max(spread, difference);
      }
    }
  }
  for (size_t rank = 0; rank < arrays.size(); ++rank) {
    if ((static_cast<int>(rank) / axis.stride) % axis.size != 0) arrays[rank] = Tensor();
  }
  return true;
}

}  // namespace

Joined Join(const State& state, const Mesh& mesh, std::span<const Tensor> ranks) {
  Joined joined;
  if (state.lost) return joined;
  std::vector<Tensor> arrays(ranks.begin(), ranks.end());
  // Innermost cuts first: the highest order of each dimension.
  std::vector<int> axes;
  for (size_t a = 0; a < mesh.atomic().size(); ++a) {
    if (state[static_cast<int>(a)].layout == Layout::kMixed) return joined;
    axes.push_back(static_cast<int>(a));
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [&](int a, int b) { return state[a].order > state[b].order; });
  for (int a : axes) {
    if (!ReduceAxis(state[a], mesh.atomic()[a], arrays, joined.spread)) return Joined();
  }
  joined.whole = arrays[0];
  return joined;
}

}  // namespace sumonce

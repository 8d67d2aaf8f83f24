#include "spmd/state.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {

AxisState Equal() { return {}; }
AxisState Shard(Dim dim, int order) {
  return {.layout = Layout::kShard, .dim = dim, .order = static_cast<int8_t>(order)};
}
AxisState Partial(DimSet why) { return {.layout = Layout::kPartial, .why = why}; }
AxisState Mixed() { return {.layout = Layout::kMixed}; }
AxisState Maxima() { return {.layout = Layout::kMaxima}; }

std::string Describe(const State& state, const Mesh& mesh) {
  if (state.lost) return absl::StrCat("lost: ", state.lost.reason);
  std::string text;
  for (size_t a = 0; a < mesh.atomic().size(); ++a) {
    if (mesh.atomic()[a].size == 1) continue;
    const AxisState& axis = state[static_cast<int>(a)];
    absl::StrAppend(&text, text.empty() ? "" : ", ", mesh.atomic()[a].name, ": ");
    switch (axis.layout) {
      case Layout::kEqual:
        text += "E";
        break;
      case Layout::kShard:
        absl::StrAppend(&text, "S(", ToAbsl(Name(axis.dim)), ")");
        break;
      case Layout::kPartial:
        absl::StrAppend(&text, "P(", Describe(axis.why), ")");
        break;
      case Layout::kMixed:
        text += "M";
        break;
      case Layout::kMaxima:
        text += "X";
        break;
    }
  }
  if (!state.scale.IsOne())
    absl::StrAppend(&text, text.empty() ? "" : ", ", "times ", state.scale.Describe(mesh));
  if (state.off) absl::StrAppend(&text, ", off: ", state.off.reason);
  return text.empty() ? "E" : text;
}

}  // namespace sumonce

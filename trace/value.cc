#include "trace/value.h"

#include "absl/strings/str_cat.h"

namespace sumonce::trace {

Value EqualValue() { return {}; }

Value UniformValue(std::optional<double> number) {
  return {.kind = Kind::kUniform, .state = {}, .cut = {}, .strip = {}, .number = number};
}

Value UninitialisedValue() {
  return {.kind = Kind::kUninitialised, .state = {}, .cut = {}, .strip = {}, .number = {}};
}

Value LostValue(const char* reason, int op) {
  Value value;
  value.state.lost = {reason, op};
  return value;
}

Value ShardValue(const Cut& cut, Strip strip, const Scale& scale) {
  Value value;
  value.state[kAxis] = Shard(DimAt(cut.dim));
  value.state.scale = scale;
  value.cut = cut;
  value.strip = std::move(strip);
  return value;
}

Value StateValue(const State& state) {
  Value value;
  value.state = state;
  return value;
}

State StateOfConstant(const Value& constant) {
  State state;
  state.scale = constant.state.scale;
  return state;
}

bool SameState(const Value& a, const Value& b) {
  if (!a.is_state() || !b.is_state() || a.lost() || b.lost()) return false;
  if (a.layout() != b.layout() || !(a.state.scale == b.state.scale)) return false;
  return a.layout() != Layout::kShard || a.cut == b.cut;
}

std::string Describe(const Value& value, const Mesh& mesh) {
  if (value.lost()) return absl::StrCat("lost: ", value.state.lost.reason);
  std::string text;
  switch (value.kind) {
    case Kind::kUniform:
      return value.state.scale.IsOne()
                 ? "a constant"
                 : absl::StrCat("a constant, times ", value.state.scale.Describe(mesh));
    case Kind::kUninitialised:
      return "uninitialised memory";
    case Kind::kRankSlice:
      return absl::StrCat("rank ", value.index, "'s slice");
    case Kind::kState:
      break;
    default:
      return "a look-up by own range";
  }
  switch (value.layout()) {
    case Layout::kEqual:
      text = "E";
      break;
    case Layout::kShard:
      text = absl::StrCat("S(", value.cut.dim, ")");
      if (value.cut.outer > 1) absl::StrAppend(&text, " in ", value.cut.outer, " blocks");
      break;
    case Layout::kPartial:
      text = "P";
      break;
    case Layout::kMixed:
      text = "M";
      break;
    case Layout::kMaxima:
      text = "X";
      break;
  }
  if (!value.state.scale.IsOne())
    absl::StrAppend(&text, ", times ", value.state.scale.Describe(mesh));
  return text;
}

}  // namespace sumonce::trace

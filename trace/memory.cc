#include "trace/memory.h"

#include <algorithm>

#include "base/status.h"
#include "spmd/map.h"
#include "trace/reasons.h"

namespace sumonce::trace {
namespace {

const Group& AxisGroup() {
  static const auto& group = *new Group{.name = "tp", .atomic = {kAxis}};
  return group;
}

// A number of the unsharded program, of what is a power of n or the sum of something and a part.
int64_t NumberOfWhole(int64_t at, int64_t twice, int64_t n) {
  if (at == twice) return at;
  if (twice == 2 * at) return at / n;
  if (at == 4 * twice) return at * n * n;
  return (2 * n - 1) * at - (2 * n - 2) * twice;
}

std::optional<Geometry> Unsharded(const Memory::Place& place, int64_t n) {
  if (place.at.shape.size() != place.twice.shape.size()) return std::nullopt;
  Geometry whole = place.at;
  whole.offset = NumberOfWhole(place.at.offset, place.twice.offset, n);
  bool sound = whole.offset >= 0;
  for (size_t d = 0; d < whole.shape.size(); ++d) {
    whole.shape[d] = NumberOfWhole(place.at.shape[d], place.twice.shape[d], n);
    whole.strides[d] = NumberOfWhole(place.at.strides[d], place.twice.strides[d], n);
    sound &= whole.shape[d] >= 0 && whole.strides[d] >= 0;
  }
  if (!sound) return std::nullopt;
  return whole;
}

// How two tensors lie at n, where it is known and the same at 2n and unsharded.
OverlapResult SteadyOverlap(const Memory::Place& part,
                            const std::optional<Geometry>& part_unsharded,
                            const Memory::Place& whole,
                            const std::optional<Geometry>& whole_unsharded, int64_t& shared_twice) {
  const OverlapResult at = OverlapOf(part.at, whole.at);
  shared_twice = at.shared;
  if (part.at == part.twice && whole.at == whole.twice) return at;
  const OverlapResult twice = OverlapOf(part.twice, whole.twice);
  shared_twice = twice.shared;
  // The same tensor is so at every size.
  if (part.at == whole.at && part.twice == whole.twice) return at;
  if (at.overlap != twice.overlap) return {Overlap::kUnknown, 0};
  const bool same = part_unsharded && whole_unsharded &&
                    OverlapOf(*part_unsharded, *whole_unsharded).overlap == at.overlap;
  return same ? at : OverlapResult{Overlap::kUnknown, 0};
}

// Whether a part is the same at both sizes, of what is the same at both.
bool SamePart(const Memory::Place& whole, const Memory::Place& part) {
  return part.at.shape == part.twice.shape &&
         PlaceIn(whole.at, part.at) == PlaceIn(whole.twice, part.twice);
}

}  // namespace

bool ExtentsFit(const Value& value, const Geometry& at, const Geometry& twice) {
  // Of a mixture of slices it is not told along which dimension they were cut.
  if (!value.is_state() || value.lost() || value.layout() == Layout::kMixed) return true;
  if (at.shape.size() != twice.shape.size()) return false;
  const bool shard = value.layout() == Layout::kShard;
  for (size_t d = 0; d < at.shape.size(); ++d) {
    const bool cut = shard && static_cast<int>(d) == value.cut.dim;
    if (at.shape[d] != twice.shape[d] * (cut ? 2 : 1)) return false;
    if (cut && at.shape[d] != value.cut.outer * value.cut.block) return false;
  }
  return !shard || value.cut.dim < static_cast<int>(at.shape.size());
}

Memory::Memory(const Alignment& traces, Sections& sections) : traces_(traces), sections_(sections) {
  int storages = 0;
  for (const TensorInfo& tensor : traces.base().tensors)
    storages = std::max(storages, tensor.storage + 1);
  logs_.resize(storages);
  one_type_.resize(storages, true);
  std::vector<std::string_view> types(storages);
  for (const TensorInfo& tensor : traces.base().tensors) {
    if (tensor.storage < 0) continue;
    std::string_view& type = types[tensor.storage];
    if (type.empty()) type = tensor.dtype;
    if (type != tensor.dtype) one_type_[tensor.storage] = false;
  }
  cache_.resize(traces.base().tensors.size());
  if (!traces.set().whole) return;
  for (const TensorInfo& tensor : traces.set().whole->tensors)
    if (tensor.outside) digests_.insert(tensor.digest);
}

Memory::Place Memory::PlaceOf(const TensorRef& ref) const {
  Place place{.storage = traces_.StorageOf(ref), .at = traces_.GeometryOf(ref), .twice = {}};
  if (ref.twin >= 0) place.twice = traces_.TwiceOf(ref);
  return place;
}

bool Memory::Varies(const TensorRef& ref) const {
  for (int r = 1; r < traces_.size(); ++r) {
    if (!(traces_.OfRank(ref, r) == traces_.OfRank(ref, 0))) return true;
  }
  return false;
}

bool Memory::UnionOf(const TensorRef& ref, Place& whole, int& dim) const {
  whole = PlaceOf(ref);
  const Geometry& first = traces_.OfRank(ref, 0);
  const int64_t step = traces_.OfRank(ref, 1).offset - first.offset;
  for (int r = 1; r < traces_.size(); ++r) {
    const Geometry& other = traces_.OfRank(ref, r);
    if (other.shape != first.shape || other.strides != first.strides) return false;
    if (other.offset != first.offset + r * step) return false;
  }
  for (size_t d = 0; d < first.shape.size(); ++d) {
    if (first.shape[d] * first.strides[d] != step || step <= 0) continue;
    dim = static_cast<int>(d);
    whole.at.shape[d] *= traces_.size();
    whole.twice.shape[d] *= 2 * traces_.size();
    return true;
  }
  return false;
}

Value Memory::ReadOwnSlice(const TensorRef& ref) {
  Place whole;
  int dim = 0;
  if (!UnionOf(ref, whole, dim)) return LostValue(kRanksDiffer, op_);
  const Value value = ReadAt(whole);
  if (value.lost() || value.kind == Kind::kUniform) return value;
  if (!value.is_state()) return LostValue(kRanksDiffer, op_);
  const State state = Apply({.map = Map::kSplit, .dim = DimAt(dim)}, AxisGroup(), value.state, op_);
  if (state.lost) return StateValue(state);
  const Strip strip = sections_.NewStrip();
  sections_.Join(strip);
  const int64_t block = traces_.GeometryOf(ref).shape[dim];
  return ShardValue({.dim = dim, .outer = 1, .block = block}, strip, state.scale);
}

void Memory::WriteOwnSlice(const TensorRef& ref, const Value& value) {
  Place whole;
  int dim = 0;
  if (!UnionOf(ref, whole, dim)) return WriteAt(PlaceOf(ref), LostValue(kRanksDiffer, op_));
  if (value.lost()) return WriteAt(whole, value);
  if (!ReadAt(whole).is_zero()) return WriteAt(whole, LostValue(kNotZeroAround, op_));
  const Cut own = {.dim = dim, .outer = 1, .block = traces_.GeometryOf(ref).shape[dim]};
  if (value.kind == Kind::kUniform)
    return WriteOwnSlice(ref, ShardValue(own, sections_.NewStrip(), value.state.scale));
  if (!value.is(Layout::kShard) || !(value.cut == own))
    return WriteAt(whole, LostValue(kRanksDiffer, op_));
  if (!sections_.Join(value.strip)) return WriteAt(whole, LostValue(kCutAndJoined, op_));
  WriteAt(whole,
          StateValue(Apply({.map = Map::kPad, .dim = DimAt(dim)}, AxisGroup(), value.state, op_)));
}

// A tensor that no recorded operation made: the same for all, the unsharded program too, as far as
// its digest says.
void Memory::AdmitOutside(const TensorRef& ref) {
  const TensorInfo& tensor = traces_.base().tensor(ref.id);
  if (Known(tensor.storage) || !tensor.outside) return;
  bool same = ref.twin >= 0 && traces_.twice().tensor(ref.twin).digest == tensor.digest;
  for (int r = 0; r < traces_.size(); ++r) {
    const int id = ref.of_ranks.empty() ? ref.id : ref.of_ranks[r];
    same &= traces_.set().ranks[r].tensor(id).digest == tensor.digest;
  }
  same &= tensor.digest.empty() || !traces_.set().whole || digests_.contains(tensor.digest);
  WriteAt(PlaceOf(ref), same ? EqualValue() : LostValue(kOutsideDiffers, op_));
}

Value Memory::Read(const TensorRef& ref) {
  if (ref.twin < 0) return LostValue(kOtherPlace, op_);
  AdmitOutside(ref);
  if (Varies(ref)) return ReadOwnSlice(ref);
  const int storage = traces_.StorageOf(ref);
  if (!Known(storage)) return LostValue(kUnknownOrigin, op_);
  if (!one_type_[storage]) {
    const Value& last = logs_[storage].back().value;
    return last.lost() ? last : LostValue(kOtherType, op_);
  }
  Cached& cached = cache_[ref.id];
  if (cached.version == Version(storage) && cached.twin == ref.twin) return cached.value;
  cached.value = ReadAt(PlaceOf(ref));
  cached.version = Version(storage);
  cached.twin = ref.twin;
  return cached.value;
}

Overlap Memory::OverlapOfEntries(std::vector<Entry>& log, int earlier, int later) {
  std::vector<std::optional<Overlap>>& known = log[later].earlier;
  if (known.empty()) known.resize(later);
  if (!known[earlier])
    known[earlier] = OverlapOf(log[earlier].place.at, log[later].place.at).overlap;
  return *known[earlier];
}

Value Memory::ReadAt(const Place& place) {
  if (Count(place.at) == 0) return UniformValue(0.0);
  if (!Known(place.storage)) return LostValue(kUnknownOrigin, op_);
  std::vector<Entry>& log = logs_[place.storage];
  const bool one_constant = log.size() == 1 && log[0].value.kind == Kind::kUniform;
  if (one_constant && OverlapOf(place.at, log[0].place.at).overlap == Overlap::kInside &&
      OverlapOf(place.twice, log[0].place.twice).overlap == Overlap::kInside)
    return log[0].value;
  const std::optional<Geometry> unsharded = Unsharded(place, traces_.size());
  std::vector<int> over;  // later writes to parts of it, last first
  int base = -1;
  int64_t written = 0, written_twice = 0;
  bool disjoint = true;
  for (int i = static_cast<int>(log.size()); i-- > 0 && base < 0;) {
    int64_t shared_twice = 0;
    const OverlapResult overlap =
        SteadyOverlap(place, unsharded, log[i].place, log[i].unsharded, shared_twice);
    if (overlap.overlap == Overlap::kUnknown) return LostValue(kUnknownOverlap, op_);
    if (overlap.overlap == Overlap::kNone) continue;
    if (overlap.overlap == Overlap::kInside) {
      base = i;
      continue;
    }
    bool shadowed = false;
    for (const int later : over) {
      const Overlap met = OverlapOfEntries(log, i, later);
      shadowed |= met == Overlap::kInside;
      if (met == Overlap::kSome || met == Overlap::kUnknown) disjoint = false;
    }
    if (shadowed) continue;
    over.push_back(i);
    written += overlap.shared;
    written_twice += shared_twice;
  }
  const bool filled = disjoint && written == Count(place.at) && written_twice == Count(place.twice);
  Value value = base >= 0 ? View(log[base].value, log[base].place, place) : UninitialisedValue();
  if (value.kind == Kind::kUninitialised && !filled) return value;
  for (auto i = over.rbegin(); i != over.rend(); ++i) value = Overlay(value, log[*i], place);
  return ExtentsFit(value, place.at, place.twice) ? value : LostValue(kExtents, op_);
}

// What `place` holds once `entry` has overwritten a part of it.
Value Memory::Overlay(const Value& current, const Entry& entry, const Place& place) {
  if (current.lost()) return current;
  Value added = entry.value;
  if (added.is(Layout::kMixed)) return Merge(current, added, entry.op);
  if (added.is(Layout::kShard)) {
    if (!CutInPart(entry, place, added)) return LostValue(kNoSingleDim, op_);
  } else if (added.kind == Kind::kUniform && current.is(Layout::kShard)) {
    if (!KeepsBlocks(current.cut, place, entry.place)) return LostValue(kNoSingleDim, op_);
  } else if (!SamePart(place, entry.place)) {
    const bool same = current.kind == Kind::kUniform && added.kind == Kind::kUniform &&
                      current.number && current.number == added.number;
    if (!same) return LostValue(kOtherPlace, op_);
  }
  return Merge(current, added, entry.op);
}

// The shard of a part, as one of the tensor around it: along the dimension of the same stride.
bool Memory::CutInPart(const Entry& entry, const Place& place, Value& value) const {
  const Geometry& part = entry.place.at;
  for (size_t d = 0; d < place.at.shape.size(); ++d) {
    if (place.at.strides[d] != part.strides[value.cut.dim]) continue;
    if (place.at.shape[d] != part.shape[value.cut.dim]) continue;
    Cut cut = value.cut;
    cut.dim = static_cast<int>(d);
    const auto view = SeenInPart(cut, place, entry.place);
    if (!view || !(view->cut == value.cut)) continue;
    value.cut = cut;
    value.state[kAxis] = Shard(DimAt(cut.dim));
    return true;
  }
  return false;
}

// Whether a part of a shard consists of whole blocks of it, at both sizes.
bool Memory::KeepsBlocks(const Cut& cut, const Place& whole, const Place& part) const {
  const auto seen = SeenInPart(cut, whole, part);
  return seen && seen->begin == 0 && seen->end == seen->of &&
         ExtentsFit(ShardValue(seen->cut, {}), part.at, part.twice);
}

// Two constants side by side: each entry is right, whatever number it is.
Value Memory::MergedConstants(const Value& current, const Value& added, int op) const {
  if (current.number && current.number == added.number) return current;
  const Value& other = current.is_zero() ? added : current;
  const bool same =
      current.is_zero() || added.is_zero() || current.state.scale == added.state.scale;
  return same ? StateValue(StateOfConstant(other)) : LostValue(kPartsDiffer, op);
}

Value Memory::Merge(const Value& current, const Value& added, int op) {
  if (added.lost() || current.kind == Kind::kUninitialised) return added;
  const auto known = [](const Value& value) {
    return value.is_state() || value.kind == Kind::kUniform;
  };
  if (!known(current) || !known(added)) return LostValue(kPartsDiffer, op);
  if (current.kind == Kind::kUniform && added.kind == Kind::kUniform)
    return MergedConstants(current, added, op);
  if (current.is_zero()) return added.is(Layout::kMixed) ? LostValue(kPartsDiffer, op) : added;
  if (added.is_zero()) return current;
  if (current.kind == Kind::kUniform || added.kind == Kind::kUniform) {
    const Value& other = current.kind == Kind::kUniform ? added : current;
    const bool fits = other.is(Layout::kEqual) || other.is(Layout::kShard);
    const bool same = current.state.scale == added.state.scale;
    return fits && same ? other : LostValue(kPartsDiffer, op);
  }
  if (SameState(current, added)) {
    Value merged = current;
    merged.alike &= added.alike;
    if (!current.is(Layout::kShard) || sections_.Align(current.strip, added.strip)) return merged;
    return LostValue(kCutAndJoined, op);
  }
  const auto term = [](const Value& value) {
    return value.is(Layout::kEqual) || value.is(Layout::kPartial);
  };
  return LostValue(term(current) && term(added) ? kMixedParts : kPartsDiffer, op);
}

Value Memory::View(const Value& value, const Place& from, const Place& to) {
  if (from.at == to.at && from.twice == to.twice) return value;
  if (value.lost() || value.kind == Kind::kUniform || value.kind == Kind::kUninitialised)
    return value;
  if (value.is(Layout::kShard)) return ViewShard(value, from, to);
  if (value.is(Layout::kMixed)) return value;
  if (PlaceIn(from.at, to.at) != PlaceIn(from.twice, to.twice)) return LostValue(kOtherPlace, op_);
  if (!value.is_state()) {
    // A look-up's entries stand in the order of its indices.
    const bool same =
        OrderOf(from.at) == OrderOf(to.at) && OrderOf(from.twice) == OrderOf(to.twice);
    return same || value.kind == Kind::kRankSlice ? value : LostValue(kOwnRangeAlone, op_);
  }
  if (ExtentsFit(value, to.at, to.twice)) return value;
  // A whole value repeated along a dimension that is cut: each rank has its repetitions.
  for (size_t d = 0; d < to.at.shape.size(); ++d) {
    const bool repeated = to.at.strides[d] == 0 && to.twice.strides[d] == 0;
    if (!repeated || to.at.shape[d] != 2 * to.twice.shape[d] || !value.is(Layout::kEqual)) continue;
    Value shard = ShardValue({.dim = static_cast<int>(d), .outer = 1, .block = to.at.shape[d]},
                             sections_.NewStrip(), value.state.scale);
    shard.alike = true;
    return ExtentsFit(shard, to.at, to.twice) ? shard : LostValue(kExtents, op_);
  }
  return LostValue(kExtents, op_);
}

// A shard's view through `to`, which is the same part of it at both sizes; or why it is none.
std::optional<CutView> Memory::SeenInPart(const Cut& cut, const Place& from, const Place& to,
                                          const char** fault) const {
  const char* ignored = nullptr;
  const auto refuse = [&](const char* reason) {
    *(fault != nullptr ? fault : &ignored) = reason;
    return std::optional<CutView>();
  };
  const auto view = ViewOf(from.at, cut, to.at);
  Cut cut_twice = cut;
  cut_twice.block /= 2;
  const auto twice = ViewOf(from.twice, cut_twice, to.twice);
  if (!view || !twice) return refuse(kNoSingleDim);
  const bool same = view->cut.dim == twice->cut.dim && view->cut.outer == twice->cut.outer &&
                    view->cut.block == 2 * twice->cut.block && view->of == 2 * twice->of &&
                    view->begin == 2 * twice->begin;
  if (!same) return refuse(kOtherPlace);
  // Along the other dimensions it is the same part at both sizes.
  const std::vector<int64_t> place = PlaceIn(from.at, to.at);
  const std::vector<int64_t> place_twice = PlaceIn(from.twice, to.twice);
  const size_t stride = from.at.shape.size() + 1;
  if (place.size() != place_twice.size()) return refuse(kOtherPlace);
  for (size_t i = 0; i < place.size(); ++i) {
    const bool along = i % stride == static_cast<size_t>(cut.dim);
    const bool repeats = along && place[i] % cut.block == 0 &&
                         place_twice[i] % cut_twice.block == 0 &&
                         place[i] / cut.block == place_twice[i] / cut_twice.block;
    const bool begins = along && i < stride;
    if (place[i] == place_twice[i] || repeats) continue;
    if (!begins || place[i] != 2 * place_twice[i]) return refuse(kOtherPlace);
  }
  return view;
}

Value Memory::ViewShard(const Value& value, const Place& from, const Place& to) {
  const char* fault = nullptr;
  const auto view = SeenInPart(value.cut, from, to, &fault);
  if (!view) return LostValue(fault, op_);
  Value seen = value;
  seen.cut = view->cut;
  seen.state[kAxis] = Shard(DimAt(seen.cut.dim));
  if (!ExtentsFit(seen, to.at, to.twice)) return LostValue(kExtents, op_);
  if (view->begin == 0 && view->end == view->of) return seen;
  const bool sound = sections_.Part(value.strip, Fraction::Of(view->begin, view->of),
                                    Fraction::Of(view->end, view->of), seen.strip);
  return sound ? seen : LostValue(kCutAndJoined, op_);
}

void Memory::Write(const TensorRef& ref, const Value& value) {
  if (Varies(ref)) return WriteOwnSlice(ref, value);
  WriteAt(PlaceOf(ref), ref.twin < 0 && !value.lost() ? LostValue(kOtherPlace, op_) : value);
}

void Memory::WriteAt(const Place& place, Value value) {
  if (!ExtentsFit(value, place.at, place.twice)) value = LostValue(kExtents, op_);
  if (place.storage < 0) return;  // no strided memory: whoever reads it finds nothing
  logs_[place.storage].push_back({.place = place,
                                  .value = std::move(value),
                                  .op = op_,
                                  .unsharded = Unsharded(place, traces_.size())});
}

std::vector<Memory::Part> Memory::PartsOf(const TensorRef& ref) const {
  const Place place = PlaceOf(ref);
  const std::optional<Geometry> unsharded = Unsharded(place, traces_.size());
  std::vector<Part> parts;
  int64_t covered = 0;
  const std::vector<Entry>& log = logs_[place.storage];
  for (int i = static_cast<int>(log.size()); i-- > 0 && covered < Count(place.at);) {
    int64_t shared_twice = 0;
    const OverlapResult overlap =
        SteadyOverlap(log[i].place, log[i].unsharded, place, unsharded, shared_twice);
    if (overlap.overlap == Overlap::kNone) continue;
    if (overlap.overlap != Overlap::kInside) return {};
    bool shadowed = false;
    for (const Part& part : parts) {
      const Overlap met = OverlapOf(log[i].place.at, part.place.at).overlap;
      if (met == Overlap::kSome || met == Overlap::kUnknown) return {};
      shadowed |= met == Overlap::kInside;
    }
    if (shadowed) continue;
    parts.push_back({log[i].place, log[i].value});
    covered += overlap.shared;
  }
  return covered == Count(place.at) ? parts : std::vector<Part>{};
}

int Memory::Writer(const TensorRef& ref) const {
  const int storage = traces_.StorageOf(ref);
  if (!Known(storage)) return -1;
  const std::vector<Entry>& log = logs_[storage];
  for (int i = static_cast<int>(log.size()); i-- > 0;) {
    if (OverlapOf(traces_.GeometryOf(ref), log[i].place.at).overlap != Overlap::kNone)
      return log[i].op;
  }
  return -1;
}

}  // namespace sumonce::trace

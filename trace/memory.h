// Values are memory: what a tensor holds follows from the writes to its storage, whatever views the
// program took of it in between (docs/TRACE.md "Memory"). A view has no rule of its own. For one
// thread; deterministic.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "trace/align.h"
#include "trace/value.h"

namespace sumonce::trace {

class Memory {
 public:
  // Both outlive this.
  Memory(const Alignment& traces, Sections& sections);

  // Faults that arise from now on are this operation's.
  void set_operation(int op) { op_ = op; }

  // A tensor of the program, or a part of one: its memory at n, on rank 0, and at 2n.
  struct Place {
    int storage = -1;
    Geometry at;
    Geometry twice;
  };
  Place PlaceOf(const TensorRef& ref) const;

  // What the tensor holds. Where the ranks' places differ by their rank, each holds its own slice.
  Value Read(const TensorRef& ref);
  Value ReadAt(const Place& place);
  // Where the ranks' places differ by their rank and all is zero around, each holds a term.
  void Write(const TensorRef& ref, const Value& value);
  void WriteAt(const Place& place, Value value);

  // The writes that a tensor's content comes from, each with its place and value, if they are
  // disjoint and cover it; empty if not.
  struct Part {
    Place place;
    Value value;
  };
  std::vector<Part> PartsOf(const TensorRef& ref) const;

  bool Known(int storage) const {
    return storage >= 0 && storage < Size() && !logs_[storage].empty();
  }
  int Version(int storage) const { return static_cast<int>(logs_[storage].size()); }
  int Writer(const TensorRef& ref) const;  // the operation of the last write it shows, -1: none

 private:
  struct Entry {
    Place place;
    Value value;
    int op;
    std::optional<Geometry> unsharded;  // nothing where the places at n and 2n do not say
    // How earlier entries of the log lie to this one, by their index; filled when first asked for.
    // A loop that writes row by row and reads blocks asks for each pair many times.
    std::vector<std::optional<Overlap>> earlier = {};
  };
  static Overlap OverlapOfEntries(std::vector<Entry>& log, int earlier, int later);
  struct Cached {
    int version = -1;
    int twin = -1;
    Value value;
  };
  int Size() const { return static_cast<int>(logs_.size()); }
  bool Varies(const TensorRef& ref) const;
  // The whole of which the ranks' places are consecutive slices along `dim`; false: they are none.
  bool UnionOf(const TensorRef& ref, Place& whole, int& dim) const;
  Value ReadOwnSlice(const TensorRef& ref);
  void WriteOwnSlice(const TensorRef& ref, const Value& value);
  void AdmitOutside(const TensorRef& ref);
  Value Overlay(const Value& current, const Entry& entry, const Place& place);
  bool KeepsBlocks(const Cut& cut, const Place& whole, const Place& part) const;
  Value Merge(const Value& current, const Value& added, int op);
  Value MergedConstants(const Value& current, const Value& added, int op) const;
  Value View(const Value& value, const Place& from, const Place& to);
  std::optional<CutView> SeenInPart(const Cut& cut, const Place& from, const Place& to,
                                    const char** fault = nullptr) const;
  Value ViewShard(const Value& value, const Place& from, const Place& to);
  bool CutInPart(const Entry& entry, const Place& place, Value& value) const;

  const Alignment& traces_;
  Sections& sections_;
  int op_ = -1;
  std::vector<std::vector<Entry>> logs_;  // by storage
  std::vector<bool> one_type_;            // by storage
  std::vector<Cached> cache_;             // by tensor id
  std::set<std::string_view> digests_;    // of tensors from outside the unsharded program
};

// Whether the extents at n and 2n are those of a value in this state.
bool ExtentsFit(const Value& value, const Geometry& at, const Geometry& twice);

}  // namespace sumonce::trace

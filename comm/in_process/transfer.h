// The data movement of one matched call, cut into chunks that any rank may move: each output
// element is written by one chunk only, after that chunk has read all it needs, so the order of
// chunks does not matter, in place or not.
//
// A chunk is a member's share where the call is small, and up to 128 KiB where it is large, so that
// claiming one costs nothing. Neighbouring chunks are neighbours in memory.
#pragma once

#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "comm/in_process/deposit.h"

namespace sumonce {

class Transfer {
 public:
  Transfer() = default;  // no chunks: Barrier, Split
  // The deposits of all members in group order; of a Send and its Recv: these two. They must
  // outlive the Transfer.
  explicit Transfer(std::span<const Deposit> deposits);

  int64_t chunks() const { return units_ * chunks_per_unit_; }
  void Move(int64_t chunk) const;

 private:
  struct Range {
    int64_t unit = 0;
    int64_t begin = 0;  // elements within the unit
    int64_t count = 0;
  };

  const Call& call(int64_t slot) const { return deposits_[slot].call; }
  Range RangeOf(int64_t chunk) const;
  void Reduce(int64_t in_offset, int64_t out_offset, int64_t count, int first, int last) const;
  void CopyToAll(const Call& source, int64_t in_offset, int64_t out_offset, int64_t count) const;
  void Exchange(const Range& range) const;

  std::span<const Deposit> deposits_;
  absl::InlinedVector<int, 16> order_;  // of the terms of a sum, by slot; empty: rank order
  int64_t units_ = 0;                   // slices, or pairs of ranks
  int64_t unit_count_ = 0;              // elements of each
  int64_t chunk_count_ = 1;
  int64_t chunks_per_unit_ = 0;
};

}  // namespace sumonce

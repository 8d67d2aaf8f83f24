// The data movement of one matched call between processes, as one rank does it: every rank owns a
// slice of a reduction, gets that slice of every other's input, reduces in ascending rank order
// (comm/reduce.h) and sends the result to those that want it. So sums have the bits of in-process
// ones, at the bytes of an all-to-all and an all-gather.
//
// Input is copied when the transfer starts, so outputs may be written in any order, in place or
// not. Data moves in chunks: no count is too large for a message.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"

namespace sumonce {

class SlicedTransfer {
 public:
  enum Phase : uint8_t { kInput = 0, kResult = 1 };
  // Sends to another slot; chunks of one phase arrive in the order of sending.
  using Send = std::function<void(int slot, Phase phase, std::string_view elements)>;

  // `slot` of this rank among `size`; of a Send 0 and of its Recv 1, of 2.
  SlicedTransfer(Call call, int slot, int size, Send send);

  // Sends what the others need of this rank's input.
  void Start();
  // What has come from a slot. Internal if it is more than the call has room for.
  absl::Status Take(int slot, Phase phase, std::string_view elements);
  bool complete() const { return awaited_ == 0; }

 private:
  struct Range {
    int64_t begin = 0;  // elements
    int64_t count = 0;
  };

  bool Reduces() const;
  Range SliceOf(int slot) const;  // of the reduction, in `in`
  Range PlaceOf(int slot) const;  // in `out`, of what comes from there unreduced
  void SendRange(int slot, Phase phase, const Buffer& buffer, Range range);
  void StartMove();
  void ReduceReady();
  void ReduceChunk(int64_t begin, int64_t count);
  absl::Status TakePlace(int slot, std::string_view elements);

  Call call_;
  int slot_;
  int size_;
  Send send_;
  int64_t element_bytes_;
  int64_t chunk_count_;
  int64_t awaited_ = 0;                          // elements
  int64_t reduced_ = 0;                          // of this rank's slice
  std::vector<int64_t> taken_;                   // by slot, of its place in `out`
  std::vector<std::deque<std::string>> inputs_;  // by slot: chunks of this rank's slice
  std::vector<int64_t> input_count_;             // by slot, so far
};

}  // namespace sumonce

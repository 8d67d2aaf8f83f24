#include "comm/in_process/transfer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "comm/call_check.h"
#include "comm/reduce.h"

namespace sumonce {
namespace {

// A member that waits takes over its share where that is worth a claim. Larger shares are cut, so
// that the quick can take over from the slow.
constexpr int64_t kMinChunkBytes = 4 * 1024;
constexpr int64_t kUncutShareBytes = 32 * 1024;
constexpr int64_t kMaxChunkBytes = 128 * 1024;
constexpr int64_t kChunksPerMember = 4;

void Copy(const Buffer& from, int64_t from_offset, const Buffer& to, int64_t to_offset,
          int64_t count) {
  const char* source = from.At(from_offset);
  char* target = to.At(to_offset);
  if (source != target) std::memcpy(target, source, count * SizeOf(from.dtype));
}

// Number of the pair (low, high), low <= high, is high (high + 1) / 2 + low; this is its inverse.
std::pair<int64_t, int64_t> PairOf(int64_t number) {
  int64_t high =
      static_cast<int64_t>((std::sqrt(8.0 * static_cast<double>(number) + 1.0) - 1.0) / 2.0);
  while (high * (high + 1) / 2 > number) --high;
  while ((high + 1) * (high + 2) / 2 <= number) ++high;
  return {number - high * (high + 1) / 2, high};
}

// Whole pages of elements, so that chunks begin at whole vectors of any element type.
int64_t ChunkBytes(int64_t call_bytes, int64_t members) {
  const int64_t share = (call_bytes + members - 1) / members;
  const int64_t wanted = share <= kUncutShareBytes ? share : share / kChunksPerMember;
  const int64_t pages = (wanted + kMinChunkBytes - 1) / kMinChunkBytes;
  return std::clamp<int64_t>(pages * kMinChunkBytes, kMinChunkBytes, kMaxChunkBytes);
}

}  // namespace

Transfer::Transfer(std::span<const Deposit> deposits) : deposits_(deposits) {
  const Call& first = call(0);
  if (!HasPayload(first.kind)) return;
  const auto comes_when_it_comes = [](const Deposit& deposit) { return deposit.arrival >= 0; };
  if (std::any_of(deposits.begin(), deposits.end(), comes_when_it_comes)) {
    order_.resize(deposits.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return deposits[a].arrival < deposits[b].arrival; });
  }
  const int64_t size = static_cast<int64_t>(deposits.size());
  units_ = 1;
  unit_count_ = Payload(first).count;
  if (first.kind == CallKind::kReduceScatter || first.kind == CallKind::kAllGather) units_ = size;
  if (first.kind == CallKind::kAllToAll) {
    units_ = size * (size + 1) / 2;
    unit_count_ /= size;
  }
  const int64_t element_bytes = SizeOf(Payload(first).dtype);
  chunk_count_ = ChunkBytes(units_ * unit_count_ * element_bytes, size) / element_bytes;
  chunks_per_unit_ = (unit_count_ + chunk_count_ - 1) / chunk_count_;
}

void Transfer::Move(int64_t chunk) const {
  const Range range = RangeOf(chunk);
  const int size = static_cast<int>(deposits_.size());
  const int slice = static_cast<int>(range.unit);
  const int64_t in_slice = range.unit * unit_count_ + range.begin;
  switch (call(0).kind) {
    case CallKind::kAllReduce:
      return Reduce(range.begin, range.begin, range.count, 0, size);
    case CallKind::kReduceScatter:
      return Reduce(in_slice, range.begin, range.count, slice, slice + 1);
    case CallKind::kAllGather:
      return CopyToAll(call(slice), range.begin, in_slice, range.count);
    case CallKind::kBroadcast:
      return CopyToAll(call(call(0).root), range.begin, range.begin, range.count);
    case CallKind::kSend:
      return Copy(call(0).in, range.begin, call(1).out, range.begin, range.count);
    case CallKind::kAllToAll:
      return Exchange(range);
    default:
      return;
  }
}

Transfer::Range Transfer::RangeOf(int64_t chunk) const {
  const int64_t begin = chunk % chunks_per_unit_ * chunk_count_;
  return {chunk / chunks_per_unit_, begin, std::min(chunk_count_, unit_count_ - begin)};
}

// Into the outputs of the ranks from `first` up to `last`.
void Transfer::Reduce(int64_t in_offset, int64_t out_offset, int64_t count, int first,
                      int last) const {
  absl::InlinedVector<const void*, 16> in;
  for (const Deposit& deposit : deposits_) in.push_back(deposit.call.in.At(in_offset));
  for (size_t i = 0; i < order_.size(); ++i) in[i] = call(order_[i]).in.At(in_offset);
  absl::InlinedVector<void*, 16> out;
  for (int rank = first; rank < last; ++rank) out.push_back(call(rank).out.At(out_offset));
  ReduceInRankOrder(call(0).out.dtype, call(0).op, in, count, out);
}

void Transfer::CopyToAll(const Call& source, int64_t in_offset, int64_t out_offset,
                         int64_t count) const {
  for (const Deposit& deposit : deposits_)
    Copy(source.in, in_offset, deposit.call.out, out_offset, count);
}

// Slice b of rank a and slice a of rank b change places. A rank that works in place is read before
// it is written.
void Transfer::Exchange(const Range& range) const {
  const auto [a, b] = PairOf(range.unit);
  const Call& low = call(a);
  const Call& high = call(b);
  const int64_t at_low = b * unit_count_ + range.begin;
  const int64_t at_high = a * unit_count_ + range.begin;
  const bool low_in_place = low.in.data == low.out.data;
  const bool high_in_place = high.in.data == high.out.data;
  if (low_in_place && high_in_place) {
    if (a == b) return;
    char* begin = low.out.At(at_low);
    std::swap_ranges(begin, begin + range.count * SizeOf(low.in.dtype), high.out.At(at_high));
  } else if (high_in_place) {
    Copy(high.in, at_high, low.out, at_low, range.count);
    Copy(low.in, at_low, high.out, at_high, range.count);
  } else {
    Copy(low.in, at_low, high.out, at_high, range.count);
    Copy(high.in, at_high, low.out, at_low, range.count);
  }
}

}  // namespace sumonce

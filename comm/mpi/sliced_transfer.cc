#include "comm/mpi/sliced_transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"
#include "comm/reduce.h"

namespace sumonce {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

}  // namespace

SlicedTransfer::SlicedTransfer(Call call, int slot, int size, Send send)
    : call_(std::move(call)),
      slot_(slot),
      size_(size),
      send_(std::move(send)),
      element_bytes_(SizeOf(HasPayload(call_.kind) ? Payload(call_).dtype : DType::kUint8)),
      chunk_count_(kChunkBytes / element_bytes_),
      taken_(size),
      inputs_(size),
      input_count_(size) {
  if (Reduces()) awaited_ += SliceOf(slot_).count;
  for (int other = 0; other < size_; ++other) {
    if (other != slot_) awaited_ += PlaceOf(other).count;
  }
}

bool SlicedTransfer::Reduces() const { return HasReduceOp(call_.kind); }

SlicedTransfer::Range SlicedTransfer::SliceOf(int slot) const {
  if (call_.kind == CallKind::kReduceScatter) return {slot * call_.out.count, call_.out.count};
  const int64_t count = call_.in.count;
  const int64_t each = count / size_;
  const int64_t longer = count % size_;  // the first slices have one more
  const int64_t begin = slot * each + std::min<int64_t>(slot, longer);
  return {begin, each + (slot < longer ? 1 : 0)};
}

SlicedTransfer::Range SlicedTransfer::PlaceOf(int slot) const {
  switch (call_.kind) {
    case CallKind::kAllReduce:
      return SliceOf(slot);
    case CallKind::kAllGather:
      return {slot * call_.in.count, call_.in.count};
    case CallKind::kAllToAll:
      return {slot * (call_.in.count / size_), call_.in.count / size_};
    case CallKind::kBroadcast:
      return {0, slot == call_.root ? call_.out.count : 0};
    case CallKind::kRecv:
      return {0, slot == 0 ? call_.out.count : 0};
    default:
      return {};
  }
}

void SlicedTransfer::SendRange(int slot, Phase phase, const Buffer& buffer, Range range) {
  for (int64_t done = 0; done < range.count; done += chunk_count_) {
    const int64_t count = std::min(chunk_count_, range.count - done);
    send_(slot, phase,
          {buffer.At(range.begin + done), static_cast<size_t>(count * element_bytes_)});
  }
}

void SlicedTransfer::Start() {
  if (Reduces()) {
    for (int other = 0; other < size_; ++other) {
      if (other != slot_) SendRange(other, kInput, call_.in, SliceOf(other));
    }
    ReduceReady();
  } else {
    StartMove();
  }
}

// What needs no arithmetic: to whom which range of `in` goes, and this rank's own part of it.
void SlicedTransfer::StartMove() {
  const Range whole = {0, call_.in.count};
  Range own = {};  // of `in`; its place in `out` is PlaceOf(slot_)
  for (int other = 0; other < size_; ++other) {
    Range range = {};
    switch (call_.kind) {
      case CallKind::kAllGather:
        range = whole;
        break;
      case CallKind::kAllToAll:
        range = PlaceOf(other);
        break;
      case CallKind::kBroadcast:
        range = slot_ == call_.root ? whole : Range{};
        break;
      case CallKind::kSend:
        range = other == 1 ? whole : Range{};
        break;
      default:
        break;
    }
    if (other == slot_) {
      own = range;
    } else {
      SendRange(other, kResult, call_.in, range);
    }
  }
  if (own.count == 0 || call_.kind == CallKind::kSend) return;
  std::memmove(call_.out.At(PlaceOf(slot_).begin), call_.in.At(own.begin),
               own.count * element_bytes_);
}

absl::Status SlicedTransfer::Take(int slot, Phase phase, std::string_view elements) {
  const auto count = static_cast<int64_t>(elements.size()) / element_bytes_;
  const bool whole = count * element_bytes_ == static_cast<int64_t>(elements.size());
  if (slot < 0 || slot >= size_ || slot == slot_ || !whole)
    return absl::InternalError(absl::StrCat("mpi: data that belongs to no place of ",
                                            Describe(call_), ", from slot ", slot));
  if (phase == kResult) return TakePlace(slot, elements);
  input_count_[slot] += count;
  if (!Reduces() || input_count_[slot] > SliceOf(slot_).count)
    return absl::InternalError(absl::StrCat("mpi: more input than ", Describe(call_),
                                            " has room "
                                            "for, from slot ",
                                            slot));
  inputs_[slot].emplace_back(elements);
  ReduceReady();
  return absl::OkStatus();
}

absl::Status SlicedTransfer::TakePlace(int slot, std::string_view elements) {
  const auto count = static_cast<int64_t>(elements.size()) / element_bytes_;
  const Range place = PlaceOf(slot);
  if (taken_[slot] + count > place.count)
    return absl::InternalError(
        absl::StrCat("mpi: more data than ", Describe(call_), " has room for, from slot ", slot));
  std::memcpy(call_.out.At(place.begin + taken_[slot]), elements.data(), elements.size());
  taken_[slot] += count;
  awaited_ -= count;
  return absl::OkStatus();
}

// The next chunk of this rank's slice, as long as every other has sent it.
void SlicedTransfer::ReduceReady() {
  const int64_t slice_count = SliceOf(slot_).count;
  while (reduced_ < slice_count) {
    for (int other = 0; other < size_; ++other) {
      if (other != slot_ && inputs_[other].empty()) return;
    }
    const int64_t count = std::min(chunk_count_, slice_count - reduced_);
    ReduceChunk(reduced_, count);
    reduced_ += count;
    awaited_ -= count;
  }
}

void SlicedTransfer::ReduceChunk(int64_t begin, int64_t count) {
  const Range slice = SliceOf(slot_);
  std::vector<const void*> in(size_);
  for (int other = 0; other < size_; ++other) {
    in[other] = other == slot_ ? call_.in.At(slice.begin + begin)
                               : static_cast<const void*>(inputs_[other].front().data());
  }
  const bool scatters = call_.kind == CallKind::kReduceScatter;
  char* out = call_.out.At((scatters ? 0 : slice.begin) + begin);
  void* const outs[] = {out};
  ReduceInRankOrder(call_.out.dtype, call_.op, in, count, outs);
  for (int other = 0; other < size_; ++other) {
    if (other == slot_) continue;
    inputs_[other].pop_front();
    if (!scatters) send_(other, kResult, {out, static_cast<size_t>(count * element_bytes_)});
  }
}

}  // namespace sumonce

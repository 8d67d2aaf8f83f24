#include "comm/in_process/small_sums.h"

#include <cstring>

#include "absl/container/inlined_vector.h"
#include "comm/reduce.h"

namespace sumonce {

SmallSums::SmallSums(int members) : members_(members <= kMaxMembers ? members : 0) {}

bool SmallSums::Takes(int slot, const Call& call) const {
  if (members_.empty() || call.kind != CallKind::kAllReduce || call.any_order) return false;
  const Member& member = members_[slot];
  return call.in.bytes() <= kMaxBytes && member.posts && member.under_way == 0;
}

void SmallSums::Post(int slot, const Call& call) {
  Member& member = members_[slot];
  const int64_t number = ++member.calls;
  Place& place = member.places[number % 2];
  place.count = call.in.count;
  place.op = call.op;
  place.dtype = call.in.dtype;
  if (call.in.count > 0) std::memcpy(place.elements.data(), call.in.data, call.in.bytes());
  place.number.store(number);
}

// The mark is read before the post. A peer posts before it makes a later call, and marks that: who
// sees the mark of a later call and then no post knows that there was none.
SmallSums::State SmallSums::Look(int slot) const {
  const int64_t number = members_[slot].calls;
  bool waits = false;
  for (int peer = 0; peer < static_cast<int>(members_.size()); ++peer) {
    const bool at_channel = members_[peer].at_channel.load() >= number;
    if (HasPosted(peer, number)) continue;
    if (at_channel) return State::kAtChannel;
    waits = true;
  }
  if (waits) return State::kWaiting;
  return AllSame(number) ? State::kPosted : State::kAtChannel;
}

// Where calls differ all members go to the channel, which says how.
bool SmallSums::AllSame(int64_t number) const {
  const Place& first = PlaceOf(0, number);
  for (int slot = 1; slot < static_cast<int>(members_.size()); ++slot) {
    const Place& other = PlaceOf(slot, number);
    if (other.op != first.op || other.dtype != first.dtype || other.count != first.count)
      return false;
  }
  return true;
}

void SmallSums::Sum(int slot, const Call& call) const {
  absl::InlinedVector<const void*, kMaxMembers> in;
  for (int peer = 0; peer < static_cast<int>(members_.size()); ++peer)
    in.push_back(PlaceOf(peer, members_[slot].calls).elements.data());
  void* const out[] = {call.out.data};
  ReduceInRankOrder(call.out.dtype, call.op, in, call.out.count, out);
}

std::vector<int> SmallSums::Missing(int slot) const {
  std::vector<int> missing;
  const int64_t number = members_[slot].calls;
  for (int peer = 0; peer < static_cast<int>(members_.size()); ++peer) {
    if (!HasCome(peer, number)) missing.push_back(peer);
  }
  return missing;
}

int64_t SmallSums::BeginAtChannel(int slot) {
  if (members_.empty()) return 0;
  Member& member = members_[slot];
  const int64_t number = ++member.calls;
  ++member.under_way;
  member.at_channel.store(number);
  return number;
}

bool SmallSums::AnyPosted(int slot, int64_t number) const {
  for (int peer = 0; peer < static_cast<int>(members_.size()); ++peer) {
    if (peer != slot && HasPosted(peer, number)) return true;
  }
  return false;
}

bool SmallSums::AllCame(int slot, int64_t number) const {
  if (members_.empty()) return false;
  for (int peer = 0; peer < static_cast<int>(members_.size()); ++peer) {
    if (peer != slot && !HasCome(peer, number)) return false;
  }
  return true;
}

void SmallSums::EndAtChannel(int slot, bool waited) {
  if (members_.empty()) return;
  --members_[slot].under_way;
  if (!waited) members_[slot].posts = false;
}

}  // namespace sumonce

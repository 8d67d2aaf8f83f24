// Small all-reduces of small groups, each member for itself: it posts its elements on cache lines
// that only it writes, waits for its peers' posts, and sums all in rank order. Two members then pay
// for one journey of a line each way; where they meet (comm/in_process/rendezvous.h), for five.
//
// Only a member that waits at once, has no other call under way and has left none unwaited for
// posts. Any other call is made at the channel as ever, and marked here: a member that has posted
// finds the mark and makes its own call there too. So a call is summed here if every member has
// posted for it, and meets at the channel if one has not, and all members see the same.
//
// Free of locks. Every function is called by the member of `slot`; Look, Missing and AllCame also
// for it by another rank, while it waits in the executor. A post has two places, by the parity of
// its call's number. It may be overwritten two calls later: by then its member has completed the
// call between, for which every peer has posted or come to the channel, and peers do neither before
// they have read the post.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace sumonce {

class SmallSums {
 public:
  static constexpr int kMaxMembers = 8;
  static constexpr int64_t kMaxBytes = 1024;

  explicit SmallSums(int members);

  // Whether `slot` may post `call`: what is posted is summed in rank order.
  bool Takes(int slot, const Call& call) const;
  void Post(int slot, const Call& call);
  // What has become of the call posted last.
  enum class State { kWaiting, kPosted, kAtChannel };
  State Look(int slot) const;
  // Of a call that all have posted; the sum, into its `out`.
  void Sum(int slot, const Call& call) const;
  // Members whose next call is not this one yet.
  std::vector<int> Missing(int slot) const;

  // A call of `slot` at the channel begins: its number.
  int64_t BeginAtChannel(int slot);
  // Whether a peer that has posted for it may wait here.
  bool AnyPosted(int slot, int64_t number) const;
  // Whether every peer has come for it, here or at the channel: then all will meet there.
  bool AllCame(int slot, int64_t number) const;
  // It ends. One that nobody waited for may have left its peers behind: `slot` posts no more.
  void EndAtChannel(int slot, bool waited);

 private:
  struct alignas(64) Place {
    std::atomic<int64_t> number = 0;  // of the call, from 1
    int64_t count = 0;
    ReduceOp op = ReduceOp::kSum;
    DType dtype = DType::kFloat64;
    alignas(16) std::array<char, kMaxBytes> elements = {};
  };
  struct Member {
    std::array<Place, 2> places;
    // The last call made at the channel.
    alignas(64) std::atomic<int64_t> at_channel = 0;
    // Its own, which peers do not poll.
    alignas(64) int64_t calls = 0;
    int under_way = 0;
    bool posts = true;
  };

  const Place& PlaceOf(int slot, int64_t number) const { return members_[slot].places[number % 2]; }
  bool HasPosted(int slot, int64_t number) const {
    return PlaceOf(slot, number).number.load() == number;
  }
  // `slot` has made its call of this number, here or at the channel, or a later one.
  bool HasCome(int slot, int64_t number) const {
    return members_[slot].at_channel.load() >= number || HasPosted(slot, number);
  }
  bool AllSame(int64_t number) const;

  std::vector<Member> members_;  // none where the group is too large
};

}  // namespace sumonce

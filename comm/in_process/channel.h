// The meetings of a fixed set of members, one after the other: the k-th call of each meets the k-th
// of all others. A process group's collectives are one channel, and the messages from one rank to
// another are one of two members.
//
// A member walks along a chain of Rendezvous, whose next link is made by whoever needs it first, so
// that a member may be any number of calls ahead of its peers. Meetings that all have left are used
// again: there are as many as calls were ever in flight.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/in_process/rendezvous.h"

namespace sumonce {

class Channel {
 public:
  explicit Channel(Members members);

  const Members& members() const { return members_; }

  // The meeting of the next call of `slot`, which alone calls this for its slot. Each is given back
  // once by Leave.
  Rendezvous& Next(int slot);
  void Leave(int slot, Rendezvous& point);

 private:
  struct alignas(64) Cursor {
    Rendezvous* point = nullptr;
  };

  Rendezvous* Take();
  void Give(Rendezvous* point);

  const Members members_;
  std::vector<Cursor> cursors_;  // by slot
  // The meeting to use next; the others that are free are under the lock.
  alignas(64) std::atomic<Rendezvous*> spare_ = nullptr;
  std::mutex mutex_;
  std::vector<Rendezvous*> free_;
  std::vector<std::unique_ptr<Rendezvous>> all_;
};

}  // namespace sumonce

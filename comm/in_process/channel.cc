#include "comm/in_process/channel.h"

#include <utility>

namespace sumonce {

Channel::Channel(Members members)
    : members_(std::move(members)), cursors_(members_.world_ranks.size()) {
  Rendezvous* const first = Take();
  for (Cursor& cursor : cursors_) cursor.point = first;
}

Rendezvous& Channel::Next(int slot) {
  Rendezvous& point = *cursors_[slot].point;
  Rendezvous* next = point.next().load(std::memory_order_acquire);
  if (next == nullptr) {
    Rendezvous* const made = Take();
    if (point.next().compare_exchange_strong(next, made, std::memory_order_acq_rel)) {
      next = made;
    } else {
      Give(made);
    }
  }
  cursors_[slot].point = next;
  return point;
}

void Channel::Leave(int slot, Rendezvous& point) {
  if (point.Leave(slot)) Give(&point);
}

Rendezvous* Channel::Take() {
  Rendezvous* const spare = spare_.exchange(nullptr, std::memory_order_acquire);
  if (spare != nullptr) return spare;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) {
    all_.push_back(std::make_unique<Rendezvous>(members_));
    return all_.back().get();
  }
  Rendezvous* const point = free_.back();
  free_.pop_back();
  return point;
}

void Channel::Give(Rendezvous* point) {
  Rendezvous* const other = spare_.exchange(point, std::memory_order_acq_rel);
  if (other == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(other);
}

}  // namespace sumonce

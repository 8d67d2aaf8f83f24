#include "comm/run_queue.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/random.h"
#include "base/status.h"

namespace sumonce {

void RunQueue::Push(int rank) {
  ranks_.push_back(rank);
  if (schedule_ == 0) std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
}

int RunQueue::Pop() {
  SUMONCE_CHECK(!ranks_.empty());
  if (schedule_ == 0) {
    std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
  } else {
    const uint64_t pick = picks_++;
    const uint64_t bits = Philox4x32(
        {static_cast<uint32_t>(pick), static_cast<uint32_t>(pick >> 32), 0, 0}, schedule_)[0];
    std::swap(ranks_[bits * ranks_.size() >> 32], ranks_.back());
  }
  const int rank = ranks_.back();
  ranks_.pop_back();
  return rank;
}

}  // namespace sumonce

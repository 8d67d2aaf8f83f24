// The ranks that can run, and which goes next: schedule 0 takes the lowest, any other number picks
// by a counter-based random number, so the same number and the same pushes give the same order.
#pragma once

#include <cstdint>
#include <vector>

namespace sumonce {

class RunQueue {
 public:
  explicit RunQueue(uint64_t schedule) : schedule_(schedule) {}

  bool empty() const { return ranks_.empty(); }
  void Push(int rank);
  int Pop();

 private:
  uint64_t schedule_;
  uint64_t picks_ = 0;
  std::vector<int> ranks_;  // schedule 0: a heap with the lowest on top; otherwise in no order
};

}  // namespace sumonce

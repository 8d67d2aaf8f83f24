// What the all-reduce benchmarks of threads and of processes share: the size of a batch of calls,
// the median of their times, and the buffers: zeros, on huge pages where the system allows it, as 4
// KiB pages alone cost a large call some 15-40 %. Zeros stay zeros under any number of sums in
// place.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace sumonce::bench {

struct FreeBuffer {
  void operator()(void* data) const { std::free(data); }
};
using ZeroBuffer = std::unique_ptr<void, FreeBuffer>;

inline ZeroBuffer MakeZeroBuffer(int64_t bytes) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const int64_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  ZeroBuffer buffer(std::aligned_alloc(kHugePage, rounded));
  if (buffer == nullptr) std::abort();
  madvise(buffer.get(), rounded, MADV_HUGEPAGE);
  std::memset(buffer.get(), 0, bytes);
  return buffer;
}

inline std::vector<ZeroBuffer> MakeZeroBuffers(int ranks, int64_t bytes) {
  std::vector<ZeroBuffer> buffers;
  for (int rank = 0; rank < ranks; ++rank) buffers.push_back(MakeZeroBuffer(bytes));
  return buffers;
}

inline double MedianUs(std::vector<double> times_us) {
  if (times_us.empty()) return 0.0;
  const auto middle = times_us.begin() + static_cast<std::ptrdiff_t>(times_us.size() / 2);
  std::nth_element(times_us.begin(), middle, times_us.end());
  return *middle;
}

inline double BestUs(const std::vector<double>& times_us) {
  return times_us.empty() ? 0.0 : *std::min_element(times_us.begin(), times_us.end());
}

// Calls between two looks at the clock: about 16 MiB or 2,000 calls.
inline int64_t CallsPerBatch(int64_t bytes) {
  return std::max<int64_t>(1, std::min<int64_t>(2000, (int64_t{16} << 20) / bytes));
}

}  // namespace sumonce::bench

// The time of one collective over one transport, as nccl-tests measures it: every rank makes the
// same call again and again, and each size is checked against exact values.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "comm/communicator.h"
#include "comm/transport.h"

namespace sumonce {

struct CollectiveBench {
  CallKind call = CallKind::kAllReduce;  // AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<int64_t>
      bytes;         // rounded down to whole elements, and to slices where ranks have such
  int repeats = 11;  // whose median counts
  double seconds_per_repeat = 2e-3;  // as many calls as fit, at least one
};

struct BenchRow {
  int64_t bytes = 0;   // as nccl-tests counts: the larger of a rank's two buffers
  int64_t count = 0;   // elements of them
  double seconds = 0;  // one call: the median over repeats of the slowest rank's
  double fastest = 0;
  double slowest = 0;
  int64_t wrong = 0;  // elements, over all ranks, that are not what they must be

  double algbw() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

// algbw times this is busbw: what the links carry, whatever the number of ranks (nccl-tests,
// doc/PERFORMANCE.md).
double BusFactor(CallKind call, int ranks);

// Collective over the ranks of the world. A row per size, the same on every rank; in processes that
// hold no rank of the world: none. Errors of the transport; InvalidArgument: a dtype without this
// reduction, a call that is not measured.
absl::StatusOr<std::vector<BenchRow>> RunCollectiveBench(const Transport& transport,
                                                         const RunOptions& options,
                                                         const CollectiveBench& bench);

}  // namespace sumonce

// One rank of a world of processes on real GPUs, for shared_gpu_test.sh: what the launcher's
// variables say, over the transport of the registry. Exit 0: all sums are right.
#include <iostream>
#include <vector>

#include "base/status.h"
#include "comm/conformance/cases.h"
#include "comm/transport.h"

namespace sumonce {
namespace {

absl::Status Rounds(Communicator& world) {
  for (int64_t count : {1, 1000, 1'000'000}) {
    std::vector<double> x = InputsOf<double>(world.rank(), count);
    SUMONCE_RETURN_IF_ERROR(world.AllReduce(BufferOf(x), BufferOf(x), ReduceOp::kSum, "sum"));
    for (int64_t i = 0; i < count; ++i) {
      if (x[i] != ExpectedReduction<double>(ReduceOp::kSum, world.size(), i))
        return absl::DataLossError("a sum is not that of ascending ranks");
    }
    SUMONCE_ASSIGN_OR_RETURN(const auto pair, world.Split(world.rank() / 2, 0, "pair"));
    std::vector<int64_t> mine = {world.rank()};
    std::vector<int64_t> all(pair->size());
    SUMONCE_RETURN_IF_ERROR(pair->AllGather(BufferOf(mine), BufferOf(all), "who"));
    if (all[pair->rank()] != world.rank()) return absl::DataLossError("a gather is wrong");
  }
  return absl::OkStatus();
}

int Main() {
  const Transport& transport = **Transports().Find("nccl");
  absl::Status status = transport.probe();
  if (!status.ok()) {
    std::cerr << status << "\n";
    return 77;
  }
  status = transport.run({.world_size = transport.capacity()}, Rounds);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace sumonce

int main() { return sumonce::Main(); }

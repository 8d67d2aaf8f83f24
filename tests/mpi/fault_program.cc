// A run over MPI in which one rank goes wrong in a way that no scenario can say.
//   fault_program MODE   (under mpirun)
// Prints the run's status on process 0; exit status 1 if it is not OK.
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace sumonce {
namespace {

constexpr double kTimeLimit = 3;

// No call and no end; sees nobody's messages. Reading a volatile keeps the loop a loop: one without
// effects may be taken not to be there.
void Spin() {
  volatile bool forever = true;
  while (forever) {
  }
}

absl::Status Reduce(Communicator& world) {
  std::vector<double> ones(1000, 1.0);
  const Buffer buffer = {ones.data(), static_cast<int64_t>(ones.size())};
  return world.AllReduce(buffer, buffer, ReduceOp::kSum, "gradients");
}

absl::Status Body(const std::string& mode, Communicator& world) {
  absl::Status status = Reduce(world);
  if (!status.ok()) return status;
  if (world.rank() == 1) {
    if (mode == "spin") Spin();
    if (mode == "vanish") _exit(7);
    if (mode == "crash") abort();
  }
  // Rank 0 alone computes for longer than the limit and then goes on: nobody is lost by that.
  if (mode == "slow_leader" && world.rank() == 0) sleep(static_cast<unsigned>(kTimeLimit) + 1);
  // The library has begun, and one rank never joins: its peers are inside a native reduction.
  if (mode == "spin_in_native" && world.rank() == 1) {
    std::vector<double> ones(4 << 20, 1.0);
    const Buffer buffer = {ones.data(), static_cast<int64_t>(ones.size())};
    const auto work = world.Start({.kind = CallKind::kAllReduce, .in = buffer, .out = buffer});
    Spin();
  }
  return Reduce(world);
}

int Main(const std::string& mode) {
  const Transport& mpi = **Transports().Find("mpi");
  const absl::StatusOr<ProcessGroup*> group = mpi.processes();
  if (!group.ok()) {
    std::cerr << group.status() << "\n";
    return 3;
  }
  (*group)->SetTimeLimit(kTimeLimit);
  const absl::Status status =
      mpi.run({.world_size = (*group)->size(), .native_sums = mode == "spin_in_native"},
              [&](Communicator& world) { return Body(mode, world); });
  if ((*group)->rank() == 0) std::cout << status << std::endl;
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace sumonce

int main(int argc, char** argv) { return sumonce::Main(argc > 1 ? argv[1] : ""); }

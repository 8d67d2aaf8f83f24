#include "comm/mpi/world_run.h"

#include <deque>

#include "comm/mpi/scripted_wire.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

// While the library works no frame moves, for longer than it takes to find a deadlock: it is none.
TEST(WorldRun, ALongNativeReductionIsNoDeadlock) {
  std::deque<std::string> arriving;
  auto processes = Processes::Open(std::make_unique<ScriptedWire>(arriving, 0.3));
  ASSERT_TRUE(processes.ok()) << processes.status();
  WorldRun run(**processes, {.world_size = 1, .native_sums = true});
  EXPECT_EQ(run.Execute([](Communicator& world) {
    double x = 3;
    const Buffer buffer = {&x, 1};
    const absl::Status status = world.AllReduce(buffer, buffer, ReduceOp::kSum, "long");
    EXPECT_EQ(x, 3);
    return status;
  }),
            absl::OkStatus());
}

// Whereas waiting for nothing is one, found without the time limit.
TEST(WorldRun, ARecvThatNobodySendsIsADeadlock) {
  std::deque<std::string> arriving;
  auto processes = Processes::Open(std::make_unique<ScriptedWire>(arriving));
  ASSERT_TRUE(processes.ok()) << processes.status();
  WorldRun run(**processes, {.world_size = 1});
  const absl::Status status = run.Execute([](Communicator& world) {
    double x = 3;
    return world.Recv({&x, 1}, 0, "never");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
}

}  // namespace
}  // namespace sumonce

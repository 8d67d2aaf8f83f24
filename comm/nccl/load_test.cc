// What the probe says where something is missing, and that loading ends either way.
#include "comm/nccl/load.h"

#include "comm/nccl/fake/fake_runtime.h"
#include "comm/transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce::nccl {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string WhatIsMissing(FakeOptions options) {
  FakeRuntime runtime(options);
  const absl::Status probe = ProbeApi(runtime.api());
  EXPECT_TRUE(probe.ok() || absl::IsUnavailable(probe)) << probe;
  return std::string(probe.message());
}

TEST(NcclProbe, NamesThePieceThatIsMissing) {
  EXPECT_EQ(WhatIsMissing({.devices = 1}), "");
  EXPECT_THAT(WhatIsMissing({.driver = false}), HasSubstr("no NVIDIA driver here (libcuda.so.1)"));
  EXPECT_THAT(WhatIsMissing({.devices = 0}), HasSubstr("shows no GPU: see nvidia-smi"));
  EXPECT_THAT(WhatIsMissing({.fail_call = 1, .fail_code = kCudaErrorInsufficientDriver}),
              HasSubstr("cudaErrorInsufficientDriver), with a driver for CUDA 13.0"));
}

// Whatever this machine has, the answer is OK or one of the known reasons.
TEST(NcclProbe, ThisMachinesAnswerIsKnown) {
  const absl::Status probe = Probe();
  if (probe.ok()) {
    EXPECT_GE(DeviceCount(), 1);
    return;
  }
  EXPECT_TRUE(absl::IsUnavailable(probe)) << probe;
  EXPECT_THAT(std::string(probe.message()),
              AnyOf(HasSubstr("built without NCCL"), HasSubstr("the NCCL library cannot be loaded"),
                    HasSubstr("no NVIDIA driver"), HasSubstr("shows no GPU"),
                    HasSubstr("cudaGetDeviceCount")));
  EXPECT_EQ(DeviceCount(), 0);
}

TEST(NcclProbe, TooManyRanksForTheMachine) {
  const Transport two{
      .name = "two", .probe = [] { return absl::OkStatus(); }, .capacity = [] { return 2; }};
  EXPECT_EQ(CanRun(two, 2), absl::OkStatus());
  EXPECT_THAT(std::string(CanRun(two, 3).message()),
              HasSubstr("two can run 2 ranks here, and 3 are asked for; take a smaller mesh"));
  const Transport broken{.name = "broken", .probe = [] { return absl::UnavailableError("why"); }};
  EXPECT_EQ(CanRun(broken, 1), absl::UnavailableError("why"));
}

}  // namespace
}  // namespace sumonce::nccl

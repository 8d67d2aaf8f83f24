// The fake sees what it is there to see: each rule broken once, straight on its tables.
#include "comm/nccl/fake/fake_runtime.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce::nccl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two devices, each with a stream and a communicator, and 64 bytes of either memory.
class FakeRuntimeTest : public testing::Test {
 protected:
  void SetUp() override {
    UniqueId id;
    nccl.GetUniqueId(&id);
    nccl.GroupStart();
    for (int r = 0; r < 2; ++r) {
      cuda.SetDevice(r);
      cuda.StreamCreateNonBlocking(&stream[r]);
      cuda.MallocHost(&pinned[r], 64);
      cuda.Malloc(&device[r], 64);
      nccl.CommInitRankNonBlocking(&comm[r], 2, id, r);
    }
    nccl.GroupEnd();
    Accept();
    ASSERT_THAT(fake.Misuse(), IsEmpty());
  }
  void Accept() {
    for (int r = 0; r < 2; ++r) {
      int state = kNcclInProgress;
      for (int poll = 0; poll < 10 && state == kNcclInProgress; ++poll)
        nccl.CommGetAsyncError(comm[r], &state);
    }
  }
  void Gather(int r, int64_t count = 8) {
    nccl.AllGather(device[r], static_cast<char*>(device[r]) + 16, count, kNcclUint8, comm[r],
                   stream[r]);
  }
  void ExpectMisuse(const std::string& text) {
    EXPECT_THAT(fake.Misuse(), Contains(HasSubstr(text)));
  }

  FakeRuntime fake;
  CudaApi& cuda = fake.api().cuda;
  NcclApi& nccl = fake.api().nccl;
  Stream stream[2] = {};
  Comm comm[2] = {};
  void* pinned[2] = {};
  void* device[2] = {};
};

// A copy has not happened before somebody asked for it.
TEST_F(FakeRuntimeTest, CopiesRunWhenTheStreamIsAskedFor) {
  std::memset(pinned[0], 7, 64);
  cuda.MemcpyAsync(device[0], pinned[0], 64, CopyKind::kHostToDevice, stream[0]);
  std::memset(pinned[0], 9, 64);
  EXPECT_NE(static_cast<char*>(device[0])[0], 9);
  EXPECT_EQ(cuda.StreamQuery(stream[1]), kCudaSuccess);
  EXPECT_NE(static_cast<char*>(device[0])[0], 9) << "another stream's end says nothing of this one";
  EXPECT_EQ(cuda.StreamQuery(stream[0]), kCudaSuccess);
  EXPECT_EQ(static_cast<char*>(device[0])[0], 9) << "what was written too early is what is copied";
}

// A collective waits for all ranks, and for what is before it in their streams; what follows it in
// another rank's stream stays undone.
TEST_F(FakeRuntimeTest, ACollectiveRunsWhenItHeadsEveryStream) {
  std::memset(pinned[1], 5, 64);
  Gather(0);
  Accept();
  EXPECT_EQ(cuda.StreamQuery(stream[0]), kCudaErrorNotReady);
  cuda.MemcpyAsync(device[1], pinned[1], 8, CopyKind::kHostToDevice, stream[1]);
  Gather(1);
  EXPECT_EQ(cuda.StreamQuery(stream[0]), kCudaErrorNotReady) << "not accepted yet";
  Accept();
  cuda.MemcpyAsync(pinned[1], device[1], 64, CopyKind::kDeviceToHost, stream[1]);
  EXPECT_EQ(cuda.StreamQuery(stream[0]), kCudaSuccess);
  EXPECT_EQ(static_cast<char*>(device[0])[24], 5);
  EXPECT_EQ(static_cast<char*>(pinned[1])[24], 5) << "the old bytes";
  std::memset(pinned[1], 6, 64);
  EXPECT_EQ(static_cast<char*>(pinned[1])[16], 6) << "the copy behind it has not run";
  EXPECT_EQ(cuda.StreamQuery(stream[1]), kCudaSuccess);
  EXPECT_EQ(static_cast<char*>(pinned[1])[24], 5);
}

TEST_F(FakeRuntimeTest, PointersOfTheWrongKind) {
  char pageable[64] = {};
  cuda.MemcpyAsync(device[0], pageable, 64, CopyKind::kHostToDevice, stream[0]);
  ExpectMisuse("cudaMemcpyAsync's source is given memory that CUDA does not know");
  cuda.MemcpyAsync(pinned[0], pinned[0], 64, CopyKind::kDeviceToHost, stream[0]);
  ExpectMisuse("cudaMemcpyAsync's source is given host memory");
}

TEST_F(FakeRuntimeTest, PointersOfAnotherDeviceOrTooShort) {
  cuda.MemcpyAsync(device[1], pinned[0], 64, CopyKind::kHostToDevice, stream[0]);
  ExpectMisuse("target is given memory of device 1 on device 0");
  cuda.MemcpyAsync(device[0], pinned[0], 65, CopyKind::kHostToDevice, stream[0]);
  ExpectMisuse("65 bytes, beyond the end");
  Gather(0, 40);
  Gather(1, 40);
  Accept();
  cuda.StreamQuery(stream[0]);
  ExpectMisuse("a collective, when it runs, is given 80 bytes, beyond the end");
}

TEST_F(FakeRuntimeTest, MemoryIsNotUsedAfterItsEnd) {
  cuda.MemcpyAsync(device[0], pinned[0], 64, CopyKind::kHostToDevice, stream[0]);
  cuda.Free(device[0]);
  ExpectMisuse("memory is freed that an operation in a stream still uses");
  cuda.MemcpyAsync(device[0], pinned[0], 64, CopyKind::kHostToDevice, stream[0]);
  ExpectMisuse("target is given memory that was freed");
  cuda.Free(device[0]);
  ExpectMisuse("freed that is not (or no longer) memory");
  cuda.FreeHost(device[1]);
  EXPECT_EQ(fake.Misuse().size(), 4u);
}

TEST_F(FakeRuntimeTest, GroupsAreBalanced) {
  nccl.GroupEnd();
  ExpectMisuse("ncclGroupEnd without ncclGroupStart");
  nccl.GroupStart();
  EXPECT_THAT(fake.Leaks(), Contains("an open group"));
}

TEST_F(FakeRuntimeTest, StreamsAndKernelsBelongToTheirDevice) {
  nccl.AllGather(device[0], device[0], 8, kNcclUint8, comm[0], stream[1]);
  ExpectMisuse("ncclAllGather on a stream of device 1, of a communicator of device 0");
  cuda.SetDevice(1);
  cuda.OrderedSum(DType::kFloat32, ReduceOp::kSum, device[0], 2, 4, device[0], stream[0]);
  ExpectMisuse("a kernel is launched on a stream of another device than the thread's");
}

TEST_F(FakeRuntimeTest, RanksMakeTheSameCollective) {
  Gather(0, 8);
  Gather(1, 4);
  Accept();
  cuda.StreamQuery(stream[0]);
  ExpectMisuse("ranks of a communicator make different collectives");
}

TEST_F(FakeRuntimeTest, CommunicatorsAreReadyWhenUsed) {
  UniqueId id;
  nccl.GetUniqueId(&id);
  Comm late = nullptr;
  nccl.CommInitRankNonBlocking(&late, 1, id, 0);
  nccl.AllGather(device[0], device[0], 8, kNcclUint8, late, stream[0]);
  ExpectMisuse("ncclAllGather on a communicator that is not ready");
  nccl.CommDestroy(late);
  ExpectMisuse("destroyed before its finalizing is complete");
  nccl.CommAbort(late);
  ExpectMisuse("ncclCommAbort is given a communicator that is none");
}

TEST_F(FakeRuntimeTest, WhatIsNotGivenBackIsListed) {
  EXPECT_THAT(fake.Leaks(), testing::UnorderedElementsAre(
                                "64 bytes of pinned memory", "64 bytes of pinned memory",
                                "64 bytes of memory of device 0", "64 bytes of memory of device 1",
                                "a stream of device 0", "a stream of device 1",
                                "a communicator of device 0", "a communicator of device 1"));
  EXPECT_THAT(std::string(fake.Verdict().message()),
              HasSubstr("not given back: a stream of device 1"));
}

TEST_F(FakeRuntimeTest, AStreamIsDestroyedWhenItIsIdle) {
  cuda.MemcpyAsync(device[0], pinned[0], 64, CopyKind::kHostToDevice, stream[0]);
  cuda.StreamDestroy(stream[0]);
  ExpectMisuse("a stream is destroyed that has something left to do");
  EXPECT_EQ(cuda.StreamQuery(stream[0]), kCudaErrorInvalidResourceHandle);
}

}  // namespace
}  // namespace sumonce::nccl

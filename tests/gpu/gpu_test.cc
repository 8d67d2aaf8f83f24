// What only a GPU can show: that the kernel has the host's bits, and that native sums run.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/status.h"
#include "comm/conformance/cases.h"
#include "comm/nccl/load.h"
#include "comm/reduce.h"

namespace sumonce {
namespace {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status there = nccl::Probe();
    if (!there.ok()) GTEST_SKIP() << there;
  }
};

// words: [ranks, count] on the host.
std::vector<uint64_t> SumOnDevice(DType dtype, ReduceOp op, const std::vector<uint64_t>& words,
                                  int ranks, int64_t count) {
  nccl::CudaApi& cuda = nccl::Load()->cuda;
  const auto check = [&cuda](int code) { ASSERT_EQ(code, 0) << cuda.GetErrorString(code); };
  const size_t bytes = words.size() * sizeof(uint64_t);
  void *host = nullptr, *in = nullptr, *out = nullptr;
  nccl::Stream stream = nullptr;
  check(cuda.SetDevice(0));
  check(cuda.StreamCreateNonBlocking(&stream));
  check(cuda.MallocHost(&host, bytes));
  check(cuda.Malloc(&in, bytes));
  check(cuda.Malloc(&out, bytes));
  std::copy(words.begin(), words.end(), static_cast<uint64_t*>(host));
  check(cuda.MemcpyAsync(in, host, bytes, nccl::CopyKind::kHostToDevice, stream));
  check(cuda.OrderedSum(dtype, op, in, ranks, count, out, stream));
  check(cuda.MemcpyAsync(host, out, count * SizeOf(dtype), nccl::CopyKind::kDeviceToHost, stream));
  while (cuda.StreamQuery(stream) == nccl::kCudaErrorNotReady) cuda.Pause(10);
  std::vector<uint64_t> result((count * SizeOf(dtype) + 7) / 8);
  std::copy_n(static_cast<uint64_t*>(host), result.size(), result.begin());
  check(cuda.StreamDestroy(stream));
  check(cuda.FreeHost(host));
  check(cuda.Free(in));
  check(cuda.Free(out));
  return result;
}

// Random bits, so with every kind of number in them but NaNs (of two of those the host may take
// either); one NaN a column at most is put in.
TEST_F(Gpu, TheKernelHasTheHostsBits) {
  constexpr int kRanks = 7;
  constexpr int64_t kWords = 1 << 16;  // per rank
  for (DType dtype :
       {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kInt32}) {
    const uint64_t exponent = dtype == DType::kFloat64   ? 0x4000000000000000
                              : dtype == DType::kFloat32 ? 0x4000000040000000
                                                         : 0x4000400040004000;
    std::vector<uint64_t> words(kRanks * kWords);
    uint64_t state = 7;
    for (size_t i = 0; i < words.size(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      words[i] = state ^ (state >> 29);
      if (SizeOf(dtype) != 8 || dtype == DType::kFloat64) words[i] &= ~exponent;
      if (i % (kWords + 1) == 5) words[i] = 0x7fc1234f7fc1234f;
    }
    const int64_t count = kWords * 8 / SizeOf(dtype);
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
      if (op == ReduceOp::kAvg && (dtype == DType::kInt64 || dtype == DType::kInt32)) continue;
      std::vector<uint64_t> expected(kWords);
      std::vector<const void*> in;
      for (int rank = 0; rank < kRanks; ++rank) in.push_back(words.data() + rank * kWords);
      void* const outputs[] = {expected.data()};
      ReduceInRankOrder(dtype, op, in, count, outputs);
      EXPECT_TRUE(SameBits(SumOnDevice(dtype, op, words, kRanks, count), expected))
          << Name(dtype) << " " << Name(op);
    }
  }
}

TEST_F(Gpu, NativeSumsAreSums) {
  const Transport& transport = **Transports().Find("nccl");
  RunOptions options{.world_size = transport.capacity()};
  options.executor.kind = ExecutorKind::kThreads;
  options.native_sums = true;
  EXPECT_EQ(transport.run(options,
                          [](Communicator& world) -> absl::Status {
                            EXPECT_FALSE(world.properties().ordered_sums);
                            std::vector<double> x(10'000, 1.0 + world.rank());
                            SUMONCE_RETURN_IF_ERROR(world.AllReduce(BufferOf(x), BufferOf(x),
                                                                    ReduceOp::kSum, "native"));
                            const double sum = world.size() * (world.size() + 1) / 2.0;
                            EXPECT_EQ(x, std::vector<double>(10'000, sum));
                            return absl::OkStatus();
                          }),
            absl::OkStatus());
}

}  // namespace
}  // namespace sumonce

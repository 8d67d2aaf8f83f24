// The CUDA table over the fake's state (comm/nccl/fake/fake_state.h).
#pragma once

#include "comm/nccl/fake/fake_state.h"

namespace sumonce::nccl {

class FakeCuda : public CudaApi {
 public:
  explicit FakeCuda(FakeState& state) : state_(state) {}

  int DriverGetVersion(int* version) override;
  int GetDeviceCount(int* count) override;
  int SetDevice(int device) override;
  int StreamCreateNonBlocking(Stream* out) override;
  int StreamQuery(Stream stream) override;
  int StreamDestroy(Stream stream) override;
  int Malloc(void** out, size_t bytes) override;
  int Free(void* data) override;
  int MallocHost(void** out, size_t bytes) override;
  int FreeHost(void* data) override;
  int MemcpyAsync(void* to, const void* from, size_t bytes, CopyKind kind, Stream stream) override;
  const char* GetErrorName(int code) override;
  const char* GetErrorString(int code) override;
  int OrderedSum(DType dtype, ReduceOp op, const void* in, int ranks, int64_t count, void* out,
                 Stream stream) override;
  void Pause(int64_t microseconds) override;

 private:
  int Allocate(FakePlace place, const char* call, void** out, size_t bytes);
  int Release(FakePlace place, const char* call, void* data);

  FakeState& state_;
};

// The kernel's work on host memory, by the kernel's own arithmetic.
void OrderedSumOnHost(DType dtype, ReduceOp op, const void* in, int ranks, int64_t count,
                      void* out);

}  // namespace sumonce::nccl

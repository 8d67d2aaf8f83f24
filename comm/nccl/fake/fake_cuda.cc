#include "comm/nccl/fake/fake_cuda.h"

#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/nccl/ordered_sum.h"

namespace sumonce::nccl {
namespace {

struct NamedCode {
  int code;
  const char* name;
  const char* text;
};

// What cuda_runtime_api.h calls them; the sentences are ours.
constexpr NamedCode kCudaCodes[] = {
    {kCudaSuccess, "cudaSuccess", "no error"},
    {kCudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {kCudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {kCudaErrorInitializationError, "cudaErrorInitializationError", "initialization failed"},
    {kCudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "the driver is too old, or none"},
    {kCudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "the devices are taken"},
    {kCudaErrorNoDevice, "cudaErrorNoDevice", "no device"},
    {kCudaErrorInvalidDevice, "cudaErrorInvalidDevice", "no such device"},
    {kCudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "the kernel was not built for this device"},
    {kCudaErrorEccUncorrectable, "cudaErrorECCUncorrectable", "an ECC error beyond correction"},
    {kCudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "no such handle"},
    {kCudaErrorNotReady, "cudaErrorNotReady", "not done yet"},
    {kCudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal address was used"},
    {kCudaErrorLaunchFailure, "cudaErrorLaunchFailure", "a kernel failed"},
    {kCudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const NamedCode& Named(int code) {
  for (const NamedCode& named : kCudaCodes) {
    if (named.code == code) return named;
  }
  return Named(kCudaErrorUnknown);
}

template <typename Arithmetic>
void SumOnHost(OrderedOp op, const void* in, int ranks, int64_t count, void* out) {
  using Element = typename Arithmetic::Element;
  for (int64_t i = 0; i < count; ++i) {
    static_cast<Element*>(out)[i] =
        OrderedElement<Arithmetic>(op, static_cast<const Element*>(in), ranks, count, i);
  }
}

}  // namespace

void OrderedSumOnHost(DType dtype, ReduceOp op, const void* in, int ranks, int64_t count,
                      void* out) {
  const OrderedOp ordered = static_cast<OrderedOp>(op);
  switch (dtype) {
    case DType::kFloat64:
      return SumOnHost<Float64Arithmetic>(ordered, in, ranks, count, out);
    case DType::kFloat32:
      return SumOnHost<Float32Arithmetic>(ordered, in, ranks, count, out);
    case DType::kBFloat16:
      return SumOnHost<BFloat16Arithmetic>(ordered, in, ranks, count, out);
    case DType::kInt64:
      return SumOnHost<Int64Arithmetic>(ordered, in, ranks, count, out);
    case DType::kInt32:
      return SumOnHost<Int32Arithmetic>(ordered, in, ranks, count, out);
    default:
      SUMONCE_CHECK(false) << "no reduction of " << Name(dtype);
  }
}

int FakeCuda::DriverGetVersion(int* version) {
  *version = state_.options.driver ? 13000 : 0;
  return kCudaSuccess;
}

int FakeCuda::GetDeviceCount(int* count) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (const int code = state_.Begin("cudaGetDeviceCount")) return code;
  *count = 0;
  if (!state_.options.driver) return kCudaErrorInsufficientDriver;
  if (state_.options.devices == 0) return kCudaErrorNoDevice;
  *count = state_.options.devices;
  return kCudaSuccess;
}

int FakeCuda::SetDevice(int device) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (const int code = state_.Begin("cudaSetDevice")) return code;
  if (device < 0 || device >= state_.options.devices) {
    state_.Misused(absl::StrCat("cudaSetDevice(", device, "): no such device"));
    return kCudaErrorInvalidDevice;
  }
  state_.thread().device = device;
  return kCudaSuccess;
}

int FakeCuda::StreamCreateNonBlocking(Stream* out) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (const int code = state_.Begin("cudaStreamCreateWithFlags")) return code;
  *out = reinterpret_cast<Stream>(state_.NewStream(state_.thread().device));
  return kCudaSuccess;
}

int FakeCuda::StreamQuery(Stream stream) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("cudaStreamQuery");
  if (code != kCudaSuccess) return code;
  FakeStream* found = state_.Find(stream, "cudaStreamQuery");
  if (found == nullptr) return kCudaErrorInvalidResourceHandle;
  return state_.Drain(*found) ? kCudaSuccess : kCudaErrorNotReady;
}

int FakeCuda::StreamDestroy(Stream stream) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin("cudaStreamDestroy");
  FakeStream* found = state_.Find(stream, "cudaStreamDestroy");
  if (found == nullptr) return kCudaErrorInvalidResourceHandle;
  found->live = false;
  if (code == kCudaSuccess && !found->queue.empty())
    state_.Misused("a stream is destroyed that has something left to do");
  found->queue.clear();
  return code;
}

int FakeCuda::Allocate(FakePlace place, const char* call, void** out, size_t bytes) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (const int code = state_.Begin(call)) return code;
  *out = state_.Allocate(place, bytes);
  return kCudaSuccess;
}

int FakeCuda::Release(FakePlace place, const char* call, void* data) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  const int code = state_.Begin(call);
  if (!state_.Free(place, data)) return kCudaErrorInvalidValue;
  return code;
}

int FakeCuda::Malloc(void** out, size_t bytes) {
  return Allocate(FakePlace::kDevice, "cudaMalloc", out, bytes);
}
int FakeCuda::Free(void* data) { return Release(FakePlace::kDevice, "cudaFree", data); }
int FakeCuda::MallocHost(void** out, size_t bytes) {
  return Allocate(FakePlace::kPinned, "cudaMallocHost", out, bytes);
}
int FakeCuda::FreeHost(void* data) { return Release(FakePlace::kPinned, "cudaFreeHost", data); }

int FakeCuda::MemcpyAsync(void* to, const void* from, size_t bytes, CopyKind kind, Stream stream) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (const int code = state_.Begin("cudaMemcpyAsync")) return code;
  FakeStream* found = state_.Find(stream, "cudaMemcpyAsync");
  if (found == nullptr) return kCudaErrorInvalidResourceHandle;
  const bool up = kind == CopyKind::kHostToDevice;
  const FakePlace source = up ? FakePlace::kPinned : FakePlace::kDevice;
  const FakePlace target = up ? FakePlace::kDevice : FakePlace::kPinned;
  const int device = found->device;
  if (!state_.Check(from, bytes, source, device, "cudaMemcpyAsync's source") ||
      !state_.Check(to, bytes, target, device, "cudaMemcpyAsync's target"))
    return kCudaErrorInvalidValue;
  found->queue.push_back(
      {.run = [to, from, bytes] { std::memcpy(to, from, bytes); }, .uses = {to, from}});
  return kCudaSuccess;
}

int FakeCuda::OrderedSum(DType dtype, ReduceOp op, const void* in, int ranks, int64_t count,
                         void* out, Stream stream) {
  const std::lock_guard<std::mutex> lock(state_.mutex);
  if (const int code = state_.Begin("ordered_sum")) return code;
  FakeStream* found = state_.Find(stream, "ordered_sum");
  if (found == nullptr) return kCudaErrorInvalidResourceHandle;
  const int device = found->device;
  if (state_.thread().device != device) {
    state_.Misused("a kernel is launched on a stream of another device than the thread's");
    return kCudaErrorInvalidResourceHandle;
  }
  const int64_t bytes = count * SizeOf(dtype);
  if (!state_.Check(in, ranks * bytes, FakePlace::kDevice, device, "the ordered sum's in") ||
      !state_.Check(out, bytes, FakePlace::kDevice, device, "the ordered sum's out"))
    return kCudaErrorIllegalAddress;
  found->queue.push_back(
      {.run = [=] { OrderedSumOnHost(dtype, op, in, ranks, count, out); }, .uses = {in, out}});
  return kCudaSuccess;
}

const char* FakeCuda::GetErrorName(int code) { return Named(code).name; }
const char* FakeCuda::GetErrorString(int code) { return Named(code).text; }

void FakeCuda::Pause(int64_t microseconds) {
  // Where one thread drives all, nothing happens while it waits.
  if (!state_.options.real_time) return;
  if (microseconds > 0) {
    usleep(static_cast<useconds_t>(microseconds));
  } else {
    std::this_thread::yield();
  }
}

}  // namespace sumonce::nccl

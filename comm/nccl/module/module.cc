// The tables over the real libraries: the one file that includes NVIDIA's headers. It links the
// CUDA runtime and NCCL, never the driver, and is loaded when somebody asks for the transport
// (comm/nccl/load.h).
#include "comm/nccl/module/module.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <cstring>

#include "comm/nccl/api.h"
#include "comm/nccl/module/ordered_sum_launch.h"

namespace sumonce::nccl {
namespace {

static_assert(kNcclSuccess == static_cast<int>(ncclSuccess));
static_assert(kNcclUnhandledCudaError == static_cast<int>(ncclUnhandledCudaError));
static_assert(kNcclSystemError == static_cast<int>(ncclSystemError));
static_assert(kNcclInternalError == static_cast<int>(ncclInternalError));
static_assert(kNcclInvalidArgument == static_cast<int>(ncclInvalidArgument));
static_assert(kNcclInvalidUsage == static_cast<int>(ncclInvalidUsage));
static_assert(kNcclRemoteError == static_cast<int>(ncclRemoteError));
static_assert(kNcclInProgress == static_cast<int>(ncclInProgress));
static_assert(kNcclNumResults == static_cast<int>(ncclNumResults));

static_assert(kNcclUint8 == static_cast<int>(ncclUint8));
static_assert(kNcclInt32 == static_cast<int>(ncclInt32));
static_assert(kNcclInt64 == static_cast<int>(ncclInt64));
static_assert(kNcclFloat32 == static_cast<int>(ncclFloat32));
static_assert(kNcclFloat64 == static_cast<int>(ncclFloat64));
static_assert(kNcclBfloat16 == static_cast<int>(ncclBfloat16));
static_assert(kNcclSum == static_cast<int>(ncclSum));
static_assert(kNcclMax == static_cast<int>(ncclMax));
static_assert(kNcclAvg == static_cast<int>(ncclAvg));
static_assert(kNcclSplitNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

static_assert(kCudaSuccess == static_cast<int>(cudaSuccess));
static_assert(kCudaErrorInvalidValue == static_cast<int>(cudaErrorInvalidValue));
static_assert(kCudaErrorMemoryAllocation == static_cast<int>(cudaErrorMemoryAllocation));
static_assert(kCudaErrorInitializationError == static_cast<int>(cudaErrorInitializationError));
static_assert(kCudaErrorInsufficientDriver == static_cast<int>(cudaErrorInsufficientDriver));
static_assert(kCudaErrorDevicesUnavailable == static_cast<int>(cudaErrorDevicesUnavailable));
static_assert(kCudaErrorNoDevice == static_cast<int>(cudaErrorNoDevice));
static_assert(kCudaErrorInvalidDevice == static_cast<int>(cudaErrorInvalidDevice));
static_assert(kCudaErrorNoKernelImageForDevice ==
              static_cast<int>(cudaErrorNoKernelImageForDevice));
static_assert(kCudaErrorEccUncorrectable == static_cast<int>(cudaErrorECCUncorrectable));
static_assert(kCudaErrorInvalidResourceHandle == static_cast<int>(cudaErrorInvalidResourceHandle));
static_assert(kCudaErrorNotReady == static_cast<int>(cudaErrorNotReady));
static_assert(kCudaErrorIllegalAddress == static_cast<int>(cudaErrorIllegalAddress));
static_assert(kCudaErrorLaunchFailure == static_cast<int>(cudaErrorLaunchFailure));
static_assert(kCudaErrorUnknown == static_cast<int>(cudaErrorUnknown));
static_assert(static_cast<int>(CopyKind::kHostToDevice) ==
              static_cast<int>(cudaMemcpyHostToDevice));
static_assert(static_cast<int>(CopyKind::kDeviceToHost) ==
              static_cast<int>(cudaMemcpyDeviceToHost));

cudaStream_t Real(Stream stream) { return reinterpret_cast<cudaStream_t>(stream); }
ncclComm_t Real(Comm comm) { return reinterpret_cast<ncclComm_t>(comm); }
ncclDataType_t Real(NcclDataType type) { return static_cast<ncclDataType_t>(type); }
ncclRedOp_t Real(NcclRedOp op) { return static_cast<ncclRedOp_t>(op); }

class RealCuda : public CudaApi {
 public:
  int DriverGetVersion(int* version) override { return cudaDriverGetVersion(version); }
  int GetDeviceCount(int* count) override { return cudaGetDeviceCount(count); }
  int SetDevice(int device) override { return cudaSetDevice(device); }
  int StreamCreateNonBlocking(Stream* out) override {
    return cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(out), cudaStreamNonBlocking);
  }
  int StreamQuery(Stream stream) override {
    const cudaError_t code = cudaStreamQuery(Real(stream));
    // Not an error, but remembered as one: the next kernel's launch would be told it.
    if (code == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
    return code;
  }
  int StreamDestroy(Stream stream) override { return cudaStreamDestroy(Real(stream)); }
  int Malloc(void** out, size_t bytes) override { return cudaMalloc(out, bytes); }
  int Free(void* data) override { return cudaFree(data); }
  int MallocHost(void** out, size_t bytes) override { return cudaMallocHost(out, bytes); }
  int FreeHost(void* data) override { return cudaFreeHost(data); }
  int MemcpyAsync(void* to, const void* from, size_t bytes, CopyKind kind, Stream stream) override {
    return cudaMemcpyAsync(to, from, bytes, static_cast<cudaMemcpyKind>(kind), Real(stream));
  }
  const char* GetErrorName(int code) override {
    return cudaGetErrorName(static_cast<cudaError_t>(code));
  }
  const char* GetErrorString(int code) override {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
  }
  int OrderedSum(DType dtype, ReduceOp op, const void* in, int ranks, int64_t count, void* out,
                 Stream stream) override {
    return LaunchOrderedSum(dtype, op, in, ranks, count, out, Real(stream));
  }
  void Pause(int64_t microseconds) override { usleep(static_cast<useconds_t>(microseconds)); }
};

class RealNccl : public NcclApi {
 public:
  int GetVersion(int* version) override { return ncclGetVersion(version); }
  int GetUniqueId(UniqueId* out) override {
    return ncclGetUniqueId(reinterpret_cast<ncclUniqueId*>(out));
  }
  int CommInitRankNonBlocking(Comm* out, int ranks, const UniqueId& id, int rank) override {
    ncclUniqueId real;
    std::memcpy(&real, &id, sizeof real);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommInitRankConfig(reinterpret_cast<ncclComm_t*>(out), ranks, real, rank, &config);
  }
  int CommSplit(Comm comm, int color, int key, Comm* out) override {
    return ncclCommSplit(Real(comm), color, key, reinterpret_cast<ncclComm_t*>(out), nullptr);
  }
  int CommGetAsyncError(Comm comm, int* result) override {
    ncclResult_t state = ncclSuccess;
    const int code = ncclCommGetAsyncError(Real(comm), &state);
    *result = state;
    return code;
  }
  int CommFinalize(Comm comm) override { return ncclCommFinalize(Real(comm)); }
  int CommDestroy(Comm comm) override { return ncclCommDestroy(Real(comm)); }
  int CommAbort(Comm comm) override { return ncclCommAbort(Real(comm)); }
  const char* GetErrorString(int code) override {
    return ncclGetErrorString(static_cast<ncclResult_t>(code));
  }
  const char* GetLastError() override { return ncclGetLastError(nullptr); }
  int GroupStart() override { return ncclGroupStart(); }
  int GroupEnd() override { return ncclGroupEnd(); }
  int AllReduce(const void* in, void* out, size_t count, NcclDataType type, NcclRedOp op, Comm comm,
                Stream stream) override {
    return ncclAllReduce(in, out, count, Real(type), Real(op), Real(comm), Real(stream));
  }
  int ReduceScatter(const void* in, void* out, size_t count, NcclDataType type, NcclRedOp op,
                    Comm comm, Stream stream) override {
    return ncclReduceScatter(in, out, count, Real(type), Real(op), Real(comm), Real(stream));
  }
  int AllGather(const void* in, void* out, size_t count, NcclDataType type, Comm comm,
                Stream stream) override {
    return ncclAllGather(in, out, count, Real(type), Real(comm), Real(stream));
  }
  int Broadcast(const void* in, void* out, size_t count, NcclDataType type, int root, Comm comm,
                Stream stream) override {
    return ncclBroadcast(in, out, count, Real(type), root, Real(comm), Real(stream));
  }
  int Send(const void* in, size_t count, NcclDataType type, int peer, Comm comm,
           Stream stream) override {
    return ncclSend(in, count, Real(type), peer, Real(comm), Real(stream));
  }
  int Recv(void* out, size_t count, NcclDataType type, int peer, Comm comm,
           Stream stream) override {
    return ncclRecv(out, count, Real(type), peer, Real(comm), Real(stream));
  }
};

}  // namespace
}  // namespace sumonce::nccl

extern "C" __attribute__((visibility("default"))) const sumonce::nccl::Module* sumonce_nccl_module(
    int version) {
  using sumonce::nccl::Module;
  static sumonce::nccl::RealCuda cuda;
  static sumonce::nccl::RealNccl nccl;
  static const Module module{{cuda, nccl}, NCCL_VERSION_CODE};
  return version == sumonce::nccl::kModuleVersion ? &module : nullptr;
}

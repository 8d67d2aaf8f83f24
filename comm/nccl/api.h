// What the NCCL transport uses of CUDA and NCCL, and nothing more, as two tables of functions.
//
// Two fill them: the module that links the real libraries (comm/nccl/module, loaded on demand by
// comm/nccl/load.h), and the fake that runs on host memory (comm/nccl/fake). A table is an abstract
// class: its virtual functions are the entries, named and meant as in nccl.h and
// cuda_runtime_api.h; they return those headers' codes. The types are opaque and the constants
// mirrored here, so that nothing outside the module needs NVIDIA's headers; the module asserts that
// they agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace sumonce::nccl {

struct StreamHandle;
struct CommHandle;
using Stream = StreamHandle*;  // cudaStream_t
using Comm = CommHandle*;      // ncclComm_t

enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
  kNcclNumResults = 8,
};

// Those that the calls below are known to return.
enum CudaError : int {
  kCudaSuccess = 0,
  kCudaErrorInvalidValue = 1,
  kCudaErrorMemoryAllocation = 2,
  kCudaErrorInitializationError = 3,
  kCudaErrorInsufficientDriver = 35,
  kCudaErrorDevicesUnavailable = 46,
  kCudaErrorNoDevice = 100,
  kCudaErrorInvalidDevice = 101,
  kCudaErrorNoKernelImageForDevice = 209,
  kCudaErrorEccUncorrectable = 214,
  kCudaErrorInvalidResourceHandle = 400,
  kCudaErrorNotReady = 600,
  kCudaErrorIllegalAddress = 700,
  kCudaErrorLaunchFailure = 719,
  kCudaErrorUnknown = 999,
};

enum NcclDataType : int {
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};

enum NcclRedOp : int { kNcclSum = 0, kNcclMax = 2, kNcclAvg = 4 };

enum class CopyKind : int { kHostToDevice = 1, kDeviceToHost = 2 };

inline constexpr int kNcclSplitNoColor = -1;

struct UniqueId {
  char bytes[128] = {};
};

class CudaApi {
 public:
  virtual ~CudaApi() = default;
  virtual int DriverGetVersion(int* version) = 0;  // 0: no driver
  virtual int GetDeviceCount(int* count) = 0;
  virtual int SetDevice(int device) = 0;                 // of the calling thread
  virtual int StreamCreateNonBlocking(Stream* out) = 0;  // on the thread's device
  virtual int StreamQuery(Stream stream) = 0;            // NotReady while work is left
  virtual int StreamDestroy(Stream stream) = 0;
  virtual int Malloc(void** out, size_t bytes) = 0;
  virtual int Free(void* data) = 0;
  virtual int MallocHost(void** out, size_t bytes) = 0;  // pinned
  virtual int FreeHost(void* data) = 0;
  virtual int MemcpyAsync(void* to, const void* from, size_t bytes, CopyKind kind,
                          Stream stream) = 0;
  virtual const char* GetErrorName(int code) = 0;
  virtual const char* GetErrorString(int code) = 0;

  // Our one kernel (comm/nccl/ordered_sum.h). in: [ranks, count], out: [count], on the device of
  // `stream`. The code is the launch's.
  virtual int OrderedSum(DType dtype, ReduceOp op, const void* in, int ranks, int64_t count,
                         void* out, Stream stream) = 0;

  // Lets about `microseconds` pass on the calling thread; 0 only gives way to others. Time limits
  // are counted in these.
  virtual void Pause(int64_t microseconds) = 0;
};

class NcclApi {
 public:
  virtual ~NcclApi() = default;
  virtual int GetVersion(int* version) = 0;
  virtual int GetUniqueId(UniqueId* out) = 0;
  // config.blocking = 0: this and every later call on the communicator may return InProgress.
  virtual int CommInitRankNonBlocking(Comm* out, int ranks, const UniqueId& id, int rank) = 0;
  // The new communicator has its parent's configuration. `out` is written by the time that the
  // parent is no longer in progress, and must live until then, or until the parent is aborted.
  virtual int CommSplit(Comm comm, int color, int key, Comm* out) = 0;
  virtual int CommGetAsyncError(Comm comm, int* result) = 0;
  virtual int CommFinalize(Comm comm) = 0;
  virtual int CommDestroy(Comm comm) = 0;
  virtual int CommAbort(Comm comm) = 0;
  virtual const char* GetErrorString(int code) = 0;
  virtual const char* GetLastError() = 0;

  virtual int GroupStart() = 0;
  virtual int GroupEnd() = 0;
  virtual int AllReduce(const void* in, void* out, size_t count, NcclDataType type, NcclRedOp op,
                        Comm comm, Stream stream) = 0;
  // count: elements of the result
  virtual int ReduceScatter(const void* in, void* out, size_t count, NcclDataType type,
                            NcclRedOp op, Comm comm, Stream stream) = 0;
  // count: elements of `in`
  virtual int AllGather(const void* in, void* out, size_t count, NcclDataType type, Comm comm,
                        Stream stream) = 0;
  virtual int Broadcast(const void* in, void* out, size_t count, NcclDataType type, int root,
                        Comm comm, Stream stream) = 0;
  virtual int Send(const void* in, size_t count, NcclDataType type, int peer, Comm comm,
                   Stream stream) = 0;
  virtual int Recv(void* out, size_t count, NcclDataType type, int peer, Comm comm,
                   Stream stream) = 0;
};

struct Api {
  CudaApi& cuda;
  NcclApi& nccl;
};

// "ncclInvalidUsage", as nccl.h spells it: the library has sentences for codes, but no names.
const char* NcclResultName(int code);

}  // namespace sumonce::nccl

// One rank's device: its stream, and the buffers through which its data go to the device and back.
// Of several ranks that one process drives, each has its own. Not thread-safe.
//
// Errors name the rank, the call and the code: "rank 2 on device 2: cudaMallocHost: out of memory
// (cudaErrorMemoryAllocation)".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm/nccl/api.h"

namespace sumonce::nccl {

class DeviceRank {
 public:
  DeviceRank(Api api, int world_rank, int device)
      : api_(api), world_rank_(world_rank), device_(device) {}

  absl::Status Open();
  // At least so many bytes each, kept and grown as needed; nothing is under way. `host` is pinned.
  absl::Status Reserve(int64_t host_bytes, int64_t in_bytes, int64_t out_bytes,
                       int64_t gathered_bytes);
  // Waits, no longer than `limit_us`, until the stream is idle, and gives everything back. The
  // first error, though the rest is given back all the same.
  absl::Status Close(int64_t limit_us);

  int world_rank() const { return world_rank_; }
  Stream stream() const { return stream_; }
  char* host() const { return static_cast<char*>(host_.data); }
  char* in() const { return static_cast<char*>(in_.data); }
  char* out() const { return static_cast<char*>(out_.data); }
  char* gathered() const { return static_cast<char*>(gathered_.data); }  // a slice of every rank

  // Makes the device that of the calling thread; precedes every call on it.
  absl::Status Enter();
  // Whether the stream has nothing left to do: the code of cudaStreamQuery.
  absl::Status Query(bool& idle);

  // OK, or what `call` failed with.
  absl::Status Cuda(int code, const char* call) const;
  absl::Status Nccl(int code, const char* call) const;  // InProgress is OK

 private:
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
    bool pinned = false;
  };
  absl::Status Grow(Block& block, int64_t bytes);
  absl::Status Release(Block& block);
  std::string Where() const;

  Api api_;
  int world_rank_;
  int device_;
  Stream stream_ = nullptr;
  Block host_{.pinned = true};
  Block in_;
  Block out_;
  Block gathered_;
};

// The same code and kind, with more words in front.
absl::Status Prefixed(const absl::Status& status, const std::string& prefix);

// Counts how long a wait has taken, in the pauses that it made.
class Patience {
 public:
  Patience(CudaApi& cuda, int64_t limit_us) : cuda_(cuda), limit_us_(limit_us) {}
  // Lets some time pass; false when there is none left.
  bool Pause();

 private:
  CudaApi& cuda_;
  int64_t limit_us_;
  int64_t pauses_ = 0;
  int64_t spent_us_ = 0;
};

}  // namespace sumonce::nccl

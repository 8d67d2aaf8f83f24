// One rank's handle on one process group.
//
// Collective: all ranks of the group make the same calls in the same order, with the same count,
// dtype, operation and root. A deviation is reported on every rank as a CollectiveMismatch
// (comm/errors.h) that names both calls and ranks, before any data moves; never a hang. In-process
// sums run in ascending rank order, so equal inputs give equal bits; a transport that promises no
// order says so in Properties, and the comparer then demands a bound. After Abort(status), or once
// any rank of the world has failed, every call returns that status.
//
// A handle belongs to its rank: only that rank calls it. The handle must outlive the Works it
// started. Buffers stay alive and untouched from Start to Wait. `in` and `out` do not overlap, or
// the call is in place: they start at the same address, but in an AllGather `in` is slice `rank` of
// `out`, in a ReduceScatter `out` slice `rank` of `in`.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace sumonce {

enum class MemoryKind : uint8_t { kHost, kDevice };

struct Buffer {
  void* data = nullptr;
  int64_t count = 0;  // elements
  DType dtype = DType::kFloat64;
  MemoryKind memory = MemoryKind::kHost;

  // The largest number there is if a count is beyond all memory.
  int64_t bytes() const {
    int64_t product = 0;
    const bool beyond = __builtin_mul_overflow(count, SizeOf(dtype), &product);
    return beyond ? std::numeric_limits<int64_t>::max() : product;
  }
  char* At(int64_t element) const { return static_cast<char*>(data) + element * SizeOf(dtype); }
};

enum class CallKind : uint8_t {
  kAllReduce,      // out[count] = reduce over ranks of in[count]
  kReduceScatter,  // out[count] = slice `rank` of the reduction of in[size*count]
  kAllGather,      // out[size*count] = in[count] of every rank, in rank order
  kAllToAll,       // out slice k = slice `rank` of rank k's in; both [size*count]
  kBroadcast,      // out[count] = in[count] of rank `root`; the others' `in` is not looked at
  kSend,           // in[count] to rank `root`; complete when received
  kRecv,           // out[count] from rank `root`
  kBarrier,
  kSplit,  // made by Split only
};
std::string_view Name(CallKind kind);  // "AllReduce", ...

enum class ReduceOp : uint8_t { kSum, kAvg, kMax };
std::string_view Name(ReduceOp op);  // "SUM", ...

// One call, as a value: wrappers (recording, faults) forward or change it in one place.
struct Call {
  CallKind kind = CallKind::kBarrier;
  Buffer in;
  Buffer out;
  ReduceOp op = ReduceOp::kSum;  // AllReduce, ReduceScatter
  int root = 0;                  // Broadcast: the source; Send, Recv: the peer
  std::string label;             // who asks, e.g. an operation's name; reported, not matched
  // AllReduce, ReduceScatter: this rank's term may be added when it comes instead of in its turn.
  // Transports that cannot, or sum in no order anyway, do not look at it; not matched.
  bool any_order = false;
};
// "AllReduce SUM of 64 float64 (decoder.layers.0.linear_proj/ReduceScatter#0)".
std::string Describe(const Call& call);

class Work {
 public:
  // A Work that is destroyed without Wait takes its call back, or sees it through if all peers have
  // come.
  virtual ~Work() = default;
  // Returns when the call is complete on this rank: then `out` is valid and buffers are free. Once
  // only.
  virtual absl::Status Wait() = 0;
};

class Communicator {
 public:
  struct Properties {
    std::string transport;     // "in_process", ...
    bool ordered_sums = true;  // sums run in ascending rank order: bit-equal runs
  };

  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // in this group
  virtual int size() const = 0;
  virtual Properties properties() const = 0;

  // Begins a call. Errors that need no peer (null buffer, negative count, kDevice memory on a host
  // transport, a ReduceScatter whose `in` is not size*out) come back at once as InvalidArgument;
  // mismatches from Wait.
  virtual absl::StatusOr<std::unique_ptr<Work>> Start(Call call) = 0;

  // Collective: the ranks that pass the same color form a group, ordered by (key, rank). A negative
  // color: null.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key,
                                                              std::string_view label) = 0;

  // Ends the world: every pending and later call of every rank, on every group, returns `status`.
  // Not collective.
  virtual void Abort(absl::Status status) = 0;

  // Blocking forms. Run is Start and Wait; a transport may know a shorter way.
  virtual absl::Status Run(Call call);
  absl::Status AllReduce(Buffer in, Buffer out, ReduceOp op, std::string_view label);
  absl::Status ReduceScatter(Buffer in, Buffer out, ReduceOp op, std::string_view label);
  absl::Status AllGather(Buffer in, Buffer out, std::string_view label);
  absl::Status AllToAll(Buffer in, Buffer out, std::string_view label);
  absl::Status Broadcast(Buffer in, Buffer out, int root, std::string_view label);
  absl::Status Send(Buffer in, int peer, std::string_view label);
  absl::Status Recv(Buffer out, int peer, std::string_view label);
  absl::Status Barrier(std::string_view label);
};

}  // namespace sumonce

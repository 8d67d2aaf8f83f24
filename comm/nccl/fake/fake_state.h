// What the fake devices hold: memory, streams, communicators, and a list of what was done wrong.
//
// A stream is a queue. What is put there runs when somebody asks whether the stream is done, and
// then no more than that answer needs: a missing wait shows as wrong data, not by luck. A
// collective runs when it heads the queue of each of its ranks. Memory that was given back is kept,
// unusable, so that a late use is seen.
//
// Thread-safe: the tables (fake_cuda.h, fake_nccl.h) hold `mutex` during each call.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/api.h"

namespace sumonce::nccl {

struct FakeOptions {
  int devices = 64;
  bool driver = true;
  // The n-th call, counted over both tables from 1, fails with this code (of its own table). What
  // it would have made is not made; what it would have given back is. A code that says "in
  // progress" or "not ready" does not fail: the call is done.
  int64_t fail_call = 0;
  int fail_code = 0;
  // If that call asks for a communicator's state, the state is the code, and the call succeeds.
  bool fail_as_state = false;
  // Collectives of this device never begin; -1: none.
  int stuck_device = -1;
  // Communicators stay in progress for ever.
  bool never_accept = false;
  // Pause lets real time pass, for those who wait for other threads; else none passes.
  bool real_time = false;
  bool record_calls = false;  // their names, for FakeRuntime::Calls
};

enum class FakePlace : uint8_t { kDevice, kPinned };

struct FakeBlock {
  FakePlace place = FakePlace::kDevice;
  int device = 0;
  std::vector<char> bytes;
  bool live = true;
};

struct FakeComm;

// One thing that a rank asks of a communicator.
struct FakePart {
  enum class Kind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kRecv };
  Kind kind = Kind::kAllReduce;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  NcclDataType type = kNcclUint8;
  NcclRedOp op = kNcclSum;
  int peer = 0;        // Send, Recv; of a Broadcast the root
  int64_t number = 0;  // among the rank's collectives, or its messages to or from that peer
};

struct FakeStream;

// The parts of one group on one communicator: they begin and end together.
struct FakeKernel {
  FakeComm* comm = nullptr;
  FakeStream* stream = nullptr;
  std::vector<FakePart> parts;
};

struct FakeOperation {
  std::function<void()> run;           // a copy, or the ordered sum; else:
  std::shared_ptr<FakeKernel> kernel;  // a collective
  std::vector<const void*> uses;       // pointers into blocks
};

struct FakeStream {
  int device = 0;
  std::deque<FakeOperation> queue;
  bool draining = false;
  bool live = true;
};

// The ranks of one communicator: which kernel holds which of their calls.
struct FakeClique {
  struct Place {
    std::shared_ptr<FakeKernel> kernel;
    size_t part = 0;
  };
  std::vector<FakeComm*> ranks;
  std::map<std::pair<int, int64_t>, Place> collectives;                // (rank, number)
  std::map<std::pair<std::pair<int, int>, int64_t>, Place> sends;      // ((from, to), number)
  std::map<std::pair<std::pair<int, int>, int64_t>, Place> receives;   // ((from, to), number)
  std::map<int, std::vector<std::tuple<int, int, FakeComm*>>> splits;  // color: (key, rank, child)
  int split_calls = 0;
  int joined = 0;
};

struct FakeComm {
  std::shared_ptr<FakeClique> clique;
  int rank = 0;
  int device = 0;
  bool live = true;
  bool finalized = false;
  bool initialized = false;
  int polls_left = 0;  // until it says that the last call is accepted
  std::vector<std::shared_ptr<FakeKernel>> unaccepted;
  std::vector<std::pair<Comm*, FakeComm*>> unaccepted_children;
  int64_t collectives = 0;
  std::map<std::pair<bool, int>, int64_t> messages;  // (sent, peer)
};

class FakeState {
 public:
  explicit FakeState(FakeOptions options) : options(options) {}

  std::mutex mutex;
  const FakeOptions options;

  // The current thread's device and open groups.
  struct Thread {
    int device = 0;
    int group_depth = 0;
    std::vector<std::shared_ptr<FakeKernel>> group;
    std::vector<FakeComm*> touched;
  };
  Thread& thread() { return threads_[std::this_thread::get_id()]; }

  // Counts the call; the code that it has to fail with, 0: none.
  int Begin(const char* call);
  // The names of all calls so far, in their order, if they are recorded.
  const std::vector<const char*>& calls() const { return calls_; }

  void Misused(const std::string& what) { misuse_.push_back(what); }
  const std::vector<std::string>& misuse() const { return misuse_; }
  // What has not been given back, a line each.
  std::vector<std::string> Leaks() const;

  void* Allocate(FakePlace place, size_t bytes);
  bool Free(FakePlace place, void* data);
  // Whether [data, data + bytes) is live memory of this place (and device); if not, it is noted.
  bool Check(const void* data, size_t bytes, FakePlace place, int device, const std::string& who);

  FakeStream* NewStream(int device);
  FakeStream* Find(Stream stream, const char* call);  // null, and noted, if it is none
  FakeComm* NewComm(std::shared_ptr<FakeClique> clique, int rank, int device);
  FakeComm* Find(Comm comm, const char* call);
  std::shared_ptr<FakeClique> CliqueOf(const UniqueId& id, int ranks);

  // Runs what the stream holds, as far as it can; true if nothing is left.
  bool Drain(FakeStream& stream) { return Drain(stream, nullptr); }
  // Takes back what the communicator has under way.
  void Cancel(FakeComm& comm);
  // Puts an accepted kernel into its stream.
  void Enqueue(const std::shared_ptr<FakeKernel>& kernel);

 private:
  FakeBlock* BlockAt(const void* data);
  bool Drain(FakeStream& stream, const FakeKernel* until);
  bool TryRun(const std::shared_ptr<FakeKernel>& kernel);
  // The kernels that can only run together with this one; false if one is not there yet.
  bool Closure(const std::shared_ptr<FakeKernel>& kernel,
               std::vector<std::shared_ptr<FakeKernel>>& all) const;
  void Execute(const std::vector<std::shared_ptr<FakeKernel>>& kernels);
  void ExecuteCollective(FakeClique& clique, int64_t number);
  void ExecuteSend(const FakeKernel& kernel, const FakePart& send);

  std::map<std::thread::id, Thread> threads_;
  int64_t number_of_calls_ = 0;
  std::vector<const char*> calls_;
  std::vector<std::string> misuse_;
  std::map<uintptr_t, FakeBlock> blocks_;  // by first byte
  std::vector<std::unique_ptr<FakeStream>> streams_;
  std::vector<std::unique_ptr<FakeComm>> comms_;
  std::map<std::string, std::shared_ptr<FakeClique>> cliques_;  // by unique id
};

}  // namespace sumonce::nccl

// What this transport needs of an MPI library, and no more: messages between processes, and the
// library's own reductions. Everything else (matching, order, time limits) is built on it, so that
// only one file (module/mpi_wire.cc) sees mpi.h. That file is a module of its own, loaded when the
// transport is first asked for: the program starts where there is no MPI.
//
// One per process, used by one thread. Messages of one pair of processes arrive in the order in
// which they were sent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace sumonce {

// A reduction under way; the call's buffers stay until it is done. Destroyed only then.
class NativeReduction {
 public:
  virtual ~NativeReduction() = default;
  virtual bool Done() = 0;  // makes progress
};

class Wire {
 public:
  struct Message {
    int from = 0;
    std::string bytes;
  };

  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Begins to send; returns at once and keeps the bytes as long as it needs them. At most
  // kMaxMessageBytes. To itself as well.
  virtual void Send(int to, std::string bytes) = 0;
  static constexpr size_t kMaxMessageBytes = size_t{1} << 28;
  // The next message that has come, if any. Makes progress.
  virtual std::optional<Message> Receive() = 0;
  // Whether all that was sent has left this process.
  virtual bool AllSent() = 0;
  // What MPI first said of a call that failed; empty while all went well.
  virtual const std::string& error() const = 0;

  // Collective over `processes` (this one among them), and blocking: a group for Reduce, its ranks
  // in the order of `processes`. Equal arguments give the same group again.
  virtual int MakeGroup(const std::string& id, const std::vector<int>& processes) = 0;
  // Collective over the group: begins AllReduce or ReduceScatter by the library's own algorithm, in
  // the order of the calls on that group. Any count.
  virtual std::unique_ptr<NativeReduction> Reduce(int group, const Call& call) = 0;

  // Collective: the end of all communication.
  virtual void Finalize() = 0;
  // Ends every process of the job with this exit status.
  [[noreturn]] virtual void Abort(int status) = 0;
};

// The module's one entry: starts MPI. Null: `error` says why.
using OpenWire = Wire* (*)(std::string* error);
inline constexpr char kOpenWireSymbol[] = "SumonceOpenMpiWire";

}  // namespace sumonce

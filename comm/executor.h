// Runs one function per rank, and is where ranks wait.
//
// FiberExecutor (Boost.Context, the default): one rank at a time on the calling thread, the next
// one picked from the schedule number, so a number replays an interleaving (schedule 0: the lowest
// runnable rank). ThreadExecutor: one thread per rank. In both a deadlock is "no rank can run": it
// is found at once, and every waiting rank returns DeadlockError saying who waits for whom. No
// exception leaves a rank's body.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sumonce {

// What a rank may ask of the executor that runs it. Shared by all ranks of one Run.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Runs `section` while no other rank runs one: guards state that ranks share. Short, never waits
  // inside.
  virtual void Exclusive(const std::function<void()>& section) = 0;

  // Waits until `ready` returns true (evaluated as an Exclusive section, at any time and on any
  // rank; once true it stays true until this rank goes on). `waiting_for` describes, for the
  // deadlock report, what this rank waits for
  // ("AllReduce SUM ... on tp [0 1]: rank 1 missing"). Returns OK, the status given to Stop, or
  // DeadlockError.
  virtual absl::Status WaitUntil(int rank, const std::function<bool()>& ready,
                                 const std::function<std::string()>& waiting_for) = 0;

  // Inside an Exclusive section: what `rank` waits for may have come true. A hint that makes waking
  // cheap; a rank that nobody notified is looked at when no other can run.
  virtual void Notify(int rank) = 0;

  // Lets every waiting and later WaitUntil return `status` (an error), unless stopped already.
  // Callable from any rank, outside of Exclusive sections.
  virtual void Stop(absl::Status status) = 0;

  // Inside an Exclusive section: OK, or the status given to Stop.
  virtual absl::Status StopStatus() const = 0;

  // The ways around locks, for state that ranks share in atomics. Outside of Exclusive sections,
  // from any rank.

  // Whether Stop was called.
  virtual bool Stopped() const = 0;
  // Whether a rank may be in WaitUntil and need a Notify: true for any that began to wait without
  // seeing what the caller has stored before this call (sequentially consistent stores).
  virtual bool AnyWaiting() const = 0;
  // Waits for a short while, without a lock, for what a rank on another core is about to do. True
  // if `ready` has returned true, so that WaitUntil is not needed. Returns false at once where no
  // other rank runs meanwhile.
  virtual bool Spin(const std::function<bool()>& ready) = 0;
};

enum class ExecutorKind : uint8_t { kFibers, kThreads };
std::string_view Name(ExecutorKind kind);

struct ExecutorOptions {
  ExecutorKind kind = ExecutorKind::kFibers;
  uint64_t schedule = 0;             // fibers: which interleaving
  int64_t stack_bytes = 256 * 1024;  // fibers: per rank, plus a guard page
  // Threads: rank r stays on the r-th of the cores that the process may use, counted round and
  // round, so that it finds its data in that core's caches. Off: where the system puts it.
  bool pin_threads = true;
};

// Runs body(rank, scheduler) for rank 0..ranks-1 and returns when all have. The first rank that
// returns an error stops the others; that error is the result (if none does, the status given to
// Stop). A rank that waits when all others have returned or wait is a deadlock. InvalidArgument: no
// ranks, a stack below 16 KiB. ResourceExhausted: no memory for the stacks, no more threads.
absl::Status RunOnExecutor(const ExecutorOptions& options, int ranks,
                           const std::function<absl::Status(int rank, Scheduler& scheduler)>& body);

}  // namespace sumonce

// What the processes of one run say to each other, when each drives one rank.
//
// Calls meet in process 0, by the same rules as those of ranks that share a process
// (comm/nccl/rendezvous.h): every rank has a proxy there, which makes its calls and waits in its
// place. Data never pass through it. When a call has met, process 0 has it moved by every process
// that takes part, one call at a time: so all devices see all calls in the same order. Each process
// has two links to process 0: on one its rank asks and the proxy answers, on the other process 0
// orders and a thread of the process carries out.
//
// Both directions are one message and one answer; the number that a message begins with is one of
// these. An answer to a rank begins with whether it is the last: the run is over, with the status
// that follows, whatever was asked. So a rank that its peers have given up learns why.
#pragma once

#include <cstdint>

namespace sumonce::nccl {

inline constexpr int kAskLink = 0;
inline constexpr int kOrderLink = 1;

inline constexpr int64_t kWorldGroup = 0;
inline constexpr int64_t kNoGroup = -1;

enum class Ask : int64_t {
  kBegin,    // -> status, when the communicators are there
  kStart,    // group, work, header -> status
  kWait,     // work -> status
  kDrop,     // work -> status: nobody touches its buffers any more
  kSplit,    // group, color, key, label -> status, group or kNoGroup, rank, size
  kRelease,  // group -> status
  kAbort,    // status -> status
  kFinish,   // status -> the last answer
};

enum class Order : int64_t {
  kInit,       // unique id, ranks, rank -> status
  kMove,       // group, piece, work, and of a message to itself another -> status
  kSplit,      // group, color, rank, new group or kNoGroup, new size -> status
  kRelease,    // group -> status
  kInterrupt,  // another rank has failed: stop waiting. No answer
  kClose,      // -> status; the last
};

}  // namespace sumonce::nccl

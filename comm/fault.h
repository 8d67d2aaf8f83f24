// What a transport, or the code that calls it, can do wrong with one call of one rank: a wrapper
// over any communicator that does it, and leaves every other call as it is.
//
// A FaultInjector belongs to one rank and is used by that rank only. Which call a fault acts on is
// data: a label and an occurrence, so the same faults give the same run under every executor and
// schedule. Faults that change what is sent work on a copy: the program's buffers stay its own.
// Host memory only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "comm/communicator.h"

namespace sumonce {

enum class FaultKind : uint8_t {
  kLate,                 // the call starts `late_us` later: no result may depend on it
  kStaleBuffer,          // sends what the matching call before this one sent
  kSwappedBuffer,        // two ranges of elements change places in what is sent
  kDroppedContribution,  // sends zeros
  kDoubledContribution,  // sends twice its values; floating-point dtypes
  kWrongGroup,           // the call is made on another group of this rank, of the same size
  kFlippedBit,           // one bit of one element of what is sent is flipped
  kReordered,            // made after the rank's next call. Who waits for it before that goes on
                         // without its result
  kKilled,               // the rank ends here: RankLostError; a process of its own gets SIGKILL
  kUnordered,            // the rank's term of a sum is added when it comes (Call::any_order)
};
std::string_view Name(FaultKind kind);  // "LATE", ...

struct CallFault {
  FaultKind kind = FaultKind::kLate;
  std::string operation;   // glob over the labels of calls
  int64_t occurrence = 1;  // among this rank's calls with such a label, from 1
  int64_t late_us = 1000;  // kLate
  int64_t element = 0;     // kFlippedBit; kSwappedBuffer: where the first range begins
  int bit = 0;             // kFlippedBit: 0 is the least significant of the element
  int64_t other = 0;       // kSwappedBuffer: where the second range begins
  int64_t count = 1;       // kSwappedBuffer: elements of each range
};
// "FLIPPED_BIT 52 of element 3 in call 1 of finalizer data_parallel/data_parallel_sum".
std::string Describe(const CallFault& fault);

class FaultInjector {
 public:
  // `own_process`: the rank is a process of its own (Transport::processes).
  FaultInjector(std::vector<CallFault> faults, bool own_process);
  ~FaultInjector();

  // The rank's world, through which its groups are made; once. `world` and the injector outlive it.
  // A fault that cannot act on its call (no input on this rank, an element beyond the count, a
  // stale buffer without an earlier one, no other group of this size) makes Start return
  // InvalidArgument naming fault, call and what was expected.
  std::unique_ptr<Communicator> Wrap(Communicator& world);

  // When the rank has ended well: OK, or FailedPrecondition naming each fault that found no call to
  // act on, with the number of calls that matched its label.
  absl::Status CheckAllActed() const;

 private:
  std::shared_ptr<class FaultState> state_;
};

}  // namespace sumonce

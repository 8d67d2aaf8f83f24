// What is right or wrong about a call, the same for every transport: alone (CheckCall) and beside
// its peers' (SameCall).
#pragma once

#include <span>

#include "absl/status/status.h"
#include "comm/communicator.h"

namespace sumonce {

bool HasReduceOp(CallKind kind);  // AllReduce, ReduceScatter
bool HasPayload(CallKind kind);   // all but Barrier and Split
// The buffer whose count and dtype peers must agree on: the smaller of the two.
const Buffer& Payload(const Call& call);

// InvalidArgument, naming the call, for what is wrong without looking at a peer: null or negative
// buffers, device memory, counts that do not fit the group's size, two dtypes, buffers that overlap
// other than in place, a root outside the group, a reduction that the dtype does not have. Host
// transports only.
absl::Status CheckCall(const Call& call, int rank, int size);

// Whether two ranks of a group make the same collective call (labels aside).
bool SameCall(const Call& a, const Call& b);

// Whether `other` matches the first member's call: a Send's Recv, else the same collective.
bool CallsMatch(const Call& first, const Call& other);

// The members' calls on one group, in its order, or a Send and its Recv: OK if they match, else
// CollectiveMismatch naming the first two that differ. `members`: their world ranks; `group`:
// "tp [0 1]".
absl::Status CheckMatch(std::span<const Call> calls, std::span<const int> members,
                        const std::string& group);

// "AllReduce SUM of 64 float64 (label) on tp [0 1]: rank 1 missing", for deadlock reports.
std::string DescribeWait(const Call& call, const std::string& group, std::span<const int> missing,
                         std::span<const int> gave_up);

}  // namespace sumonce

// What is right or wrong about a call, the same for every transport: alone (CheckCall) and beside
// its peers' (SameCall).
#pragma once

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

}  // namespace sumonce

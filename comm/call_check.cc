#include "comm/call_check.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/errors.h"
#include "comm/rank_list.h"

namespace sumonce {
namespace {

absl::Status Invalid(const Call& call, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(Describe(call), ": ", what));
}

bool NeedsIn(const Call& call, int rank) {
  if (call.kind == CallKind::kBroadcast) return rank == call.root;
  return HasPayload(call.kind) && call.kind != CallKind::kRecv;
}

bool NeedsOut(const Call& call) { return HasPayload(call.kind) && call.kind != CallKind::kSend; }

// `size`: a call multiplies counts by the group's size, and by the bytes of an element.
absl::Status CheckBuffer(const Call& call, const Buffer& buffer, const char* name, int size) {
  if (buffer.count < 0)
    return Invalid(call, absl::StrCat(name, " has the negative count ", buffer.count));
  if (buffer.count > std::numeric_limits<int64_t>::max() / SizeOf(buffer.dtype) / size) {
    return Invalid(
        call, absl::StrCat(name, " has ", buffer.count, " elements, more than memory can hold"));
  }
  if (buffer.data == nullptr && buffer.count > 0)
    return Invalid(call, absl::StrCat(name, " is null"));
  if (buffer.memory != MemoryKind::kHost) {
    return Invalid(call,
                   absl::StrCat(name, " is device memory, and this transport takes host memory"));
  }
  return absl::OkStatus();
}

absl::Status CheckRoot(const Call& call, int size) {
  const bool has_root = call.kind == CallKind::kBroadcast || call.kind == CallKind::kSend ||
                        call.kind == CallKind::kRecv;
  if (!has_root || (call.root >= 0 && call.root < size)) return absl::OkStatus();
  return Invalid(call, absl::StrCat("no rank ", call.root, " in a group of ", size));
}

absl::Status CheckCounts(const Call& call, int size) {
  const int64_t in = call.in.count;
  const int64_t out = call.out.count;
  switch (call.kind) {
    case CallKind::kReduceScatter:
      if (in == size * out) break;
      return Invalid(
          call, absl::StrCat("in has ", in, " elements, expected ", size, " times out's ", out));
    case CallKind::kAllGather:
      if (out == size * in) break;
      return Invalid(
          call, absl::StrCat("out has ", out, " elements, expected ", size, " times in's ", in));
    case CallKind::kAllToAll:
      if (in % size != 0) {
        return Invalid(call,
                       absl::StrCat(in, " elements cannot be cut into ", size, " equal slices"));
      }
      [[fallthrough]];
    default:
      if (in != out) return Invalid(call, absl::StrCat("in has ", in, " elements and out ", out));
  }
  return absl::OkStatus();
}

// Where `in` lies when a call is in place: on `out` itself, or on this rank's slice of the larger
// buffer.
bool InPlace(const Call& call, int rank) {
  const char* in = static_cast<const char*>(call.in.data);
  const char* out = static_cast<const char*>(call.out.data);
  if (call.kind == CallKind::kAllGather) return in == out + rank * call.in.bytes();
  if (call.kind == CallKind::kReduceScatter) return out == in + rank * call.out.bytes();
  return in == out;
}

absl::Status CheckOverlap(const Call& call, int rank) {
  const char* in = static_cast<const char*>(call.in.data);
  const char* out = static_cast<const char*>(call.out.data);
  const bool apart = in + call.in.bytes() <= out || out + call.out.bytes() <= in;
  if (apart || call.in.count == 0 || call.out.count == 0 || InPlace(call, rank))
    return absl::OkStatus();
  return Invalid(call, "in and out overlap, but not in place");
}

absl::Status CheckReduction(const Call& call) {
  if (!HasReduceOp(call.kind)) return absl::OkStatus();
  switch (call.out.dtype) {
    case DType::kFloat64:
    case DType::kFloat32:
    case DType::kBFloat16:
      return absl::OkStatus();
    case DType::kInt64:
    case DType::kInt32:
      if (call.op != ReduceOp::kAvg) return absl::OkStatus();
      return Invalid(call, "an average of integers is not defined; sum and divide");
    default:
      return Invalid(call, "this dtype can be moved, not reduced");
  }
}

bool PeersMatch(const Call& send, const Call& recv) {
  return send.in.count == recv.out.count && send.in.dtype == recv.out.dtype;
}

std::string RanksThat(std::span<const int> ranks, const char* what) {
  return ranks.empty() ? "" : absl::StrCat(" ", RanksInWords(ranks), " ", what);
}

}  // namespace

bool HasReduceOp(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduceScatter;
}

bool HasPayload(CallKind kind) { return kind != CallKind::kBarrier && kind != CallKind::kSplit; }

const Buffer& Payload(const Call& call) {
  const bool of_in = call.kind == CallKind::kAllGather || call.kind == CallKind::kAllToAll ||
                     call.kind == CallKind::kSend;
  return of_in ? call.in : call.out;
}

absl::Status CheckCall(const Call& call, int rank, int size) {
  if (call.kind == CallKind::kSplit) return Invalid(call, "is made by Communicator::Split only");
  SUMONCE_RETURN_IF_ERROR(CheckRoot(call, size));
  const bool needs_in = NeedsIn(call, rank);
  const bool needs_out = NeedsOut(call);
  if (needs_in) SUMONCE_RETURN_IF_ERROR(CheckBuffer(call, call.in, "in", size));
  if (needs_out) SUMONCE_RETURN_IF_ERROR(CheckBuffer(call, call.out, "out", size));
  if (!needs_in || !needs_out) return absl::OkStatus();
  if (call.in.dtype != call.out.dtype) {
    return Invalid(call, absl::StrCat("in is ", ToAbsl(Name(call.in.dtype)), " and out ",
                                      ToAbsl(Name(call.out.dtype))));
  }
  SUMONCE_RETURN_IF_ERROR(CheckCounts(call, size));
  SUMONCE_RETURN_IF_ERROR(CheckReduction(call));
  return CheckOverlap(call, rank);
}

bool SameCall(const Call& a, const Call& b) {
  if (a.kind != b.kind) return false;
  if (HasReduceOp(a.kind) && a.op != b.op) return false;
  if (a.kind == CallKind::kBroadcast && a.root != b.root) return false;
  if (!HasPayload(a.kind)) return true;
  return Payload(a).count == Payload(b).count && Payload(a).dtype == Payload(b).dtype;
}

bool CallsMatch(const Call& first, const Call& other) {
  return first.kind == CallKind::kSend ? PeersMatch(first, other) : SameCall(first, other);
}

absl::Status CheckMatch(std::span<const Call> calls, std::span<const int> members,
                        const std::string& group) {
  size_t first_other = 0;
  int others = 0;
  for (size_t i = 1; i < calls.size(); ++i) {
    if (CallsMatch(calls[0], calls[i])) continue;
    if (++others == 1) first_other = i;
  }
  if (others == 0) return absl::OkStatus();
  std::string message =
      absl::StrCat("rank ", members[0], " calls ", Describe(calls[0]), " while rank ",
                   members[first_other], " calls ", Describe(calls[first_other]));
  if (others > 1)
    absl::StrAppend(&message, ", as ", others - 1, " more differ from rank ", members[0]);
  return CollectiveMismatchError(absl::StrCat(message, " on group ", group));
}

std::string DescribeWait(const Call& call, const std::string& group, std::span<const int> missing,
                         std::span<const int> gave_up) {
  const std::string text = absl::StrCat(Describe(call), " on ", group, ":");
  if (missing.empty() && gave_up.empty()) return text + " its peers move the data";
  return absl::StrCat(text, RanksThat(missing, "missing"),
                      RanksThat(gave_up, "gave it up without waiting"));
}

}  // namespace sumonce

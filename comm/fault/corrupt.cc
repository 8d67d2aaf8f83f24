#include "comm/fault/corrupt.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"

namespace sumonce {
namespace {

absl::Status CannotAct(const CallFault& fault, const Call& call, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(fault), " cannot act on ", Describe(call), ": ", why));
}

bool HasInput(const Call& call, int rank) {
  if (call.kind == CallKind::kBroadcast && call.root != rank) return false;
  return HasPayload(call.kind) && call.kind != CallKind::kRecv && call.in.count > 0 &&
         call.in.data != nullptr;
}

template <typename T>
void DoubleAs(std::vector<char>& bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    if constexpr (std::is_same_v<T, BFloat16>) {
      value = BFloat16::FromFloat(2 * value.ToFloat());
    } else {
      value *= 2;
    }
    std::memcpy(bytes.data() + at, &value, sizeof(T));
  }
}

absl::Status Double(const CallFault& fault, const Call& call, std::vector<char>& bytes) {
  switch (call.in.dtype) {
    case DType::kFloat64:
      DoubleAs<double>(bytes);
      return absl::OkStatus();
    case DType::kFloat32:
      DoubleAs<float>(bytes);
      return absl::OkStatus();
    case DType::kBFloat16:
      DoubleAs<BFloat16>(bytes);
      return absl::OkStatus();
    default:
      return CannotAct(fault, call, "expected floating-point numbers");
  }
}

absl::Status FlipBit(const CallFault& fault, const Call& call, std::vector<char>& bytes) {
  const int64_t size = SizeOf(call.in.dtype);
  if (fault.element < 0 || fault.element >= call.in.count)
    return CannotAct(fault, call, absl::StrCat("expected an element below ", call.in.count));
  if (fault.bit < 0 || fault.bit >= 8 * size)
    return CannotAct(fault, call, absl::StrCat("expected a bit below ", 8 * size));
  bytes[fault.element * size + fault.bit / 8] ^= static_cast<char>(1 << (fault.bit % 8));
  return absl::OkStatus();
}

absl::Status SwapRanges(const CallFault& fault, const Call& call, std::vector<char>& bytes) {
  const int64_t low = std::min(fault.element, fault.other);
  const int64_t high = std::max(fault.element, fault.other);
  if (low < 0 || fault.count < 1 || fault.count > call.in.count || low + fault.count > high ||
      high > call.in.count - fault.count) {
    return CannotAct(fault, call,
                     absl::StrCat("expected two ranges apart from each other, below ",
                                  call.in.count, " elements"));
  }
  const int64_t size = SizeOf(call.in.dtype);
  std::swap_ranges(bytes.begin() + low * size, bytes.begin() + (low + fault.count) * size,
                   bytes.begin() + high * size);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<char>> Corrupted(const CallFault& fault, const Call& call, int rank,
                                            const std::vector<char>* earlier) {
  if (call.in.memory != MemoryKind::kHost)
    return CannotAct(fault, call, "its input is device memory, expected host memory");
  if (!HasInput(call, rank)) return CannotAct(fault, call, "it has no input on this rank");
  const char* begin = static_cast<const char*>(call.in.data);
  std::vector<char> sent(begin, begin + call.in.bytes());
  switch (fault.kind) {
    case FaultKind::kStaleBuffer:
      if (earlier == nullptr || earlier->size() != sent.size())
        return CannotAct(fault, call, "expected a matching call of the same size before it");
      return *earlier;
    case FaultKind::kDroppedContribution:
      std::fill(sent.begin(), sent.end(), 0);
      return sent;
    case FaultKind::kDoubledContribution:
      SUMONCE_RETURN_IF_ERROR(Double(fault, call, sent));
      return sent;
    case FaultKind::kFlippedBit:
      SUMONCE_RETURN_IF_ERROR(FlipBit(fault, call, sent));
      return sent;
    case FaultKind::kSwappedBuffer:
      SUMONCE_RETURN_IF_ERROR(SwapRanges(fault, call, sent));
      return sent;
    default:
      return CannotAct(fault, call, "it changes no buffer");
  }
}

std::string_view Name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kLate:
      return "LATE";
    case FaultKind::kStaleBuffer:
      return "STALE_BUFFER";
    case FaultKind::kSwappedBuffer:
      return "SWAPPED_BUFFER";
    case FaultKind::kDroppedContribution:
      return "DROPPED_CONTRIBUTION";
    case FaultKind::kDoubledContribution:
      return "DOUBLED_CONTRIBUTION";
    case FaultKind::kWrongGroup:
      return "WRONG_GROUP";
    case FaultKind::kFlippedBit:
      return "FLIPPED_BIT";
    case FaultKind::kReordered:
      return "REORDERED";
    case FaultKind::kKilled:
      return "KILLED";
    case FaultKind::kUnordered:
      return "UNORDERED";
  }
  return "unknown fault";
}

std::string Describe(const CallFault& fault) {
  std::string text(Name(fault.kind));
  if (fault.kind == FaultKind::kFlippedBit)
    absl::StrAppend(&text, " ", fault.bit, " of element ", fault.element);
  if (fault.kind == FaultKind::kSwappedBuffer) {
    absl::StrAppend(&text, " of ", fault.count, " elements from ", fault.element, " and from ",
                    fault.other);
  }
  return absl::StrCat(text, " in call ", fault.occurrence, " of ", fault.operation);
}

}  // namespace sumonce

#include "comm/nccl/device_collective.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/call_check.h"
#include "comm/errors.h"
#include "comm/rank_list.h"

namespace sumonce::nccl {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;

NcclDataType NcclTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return kNcclFloat64;
    case DType::kFloat32:
      return kNcclFloat32;
    case DType::kBFloat16:
      return kNcclBfloat16;
    case DType::kInt64:
      return kNcclInt64;
    case DType::kInt32:
      return kNcclInt32;
    default:
      SUMONCE_CHECK(false) << "no reduction of " << Name(dtype);
  }
}

NcclRedOp NcclOpOf(ReduceOp op) {
  if (op == ReduceOp::kMax) return kNcclMax;
  return op == ReduceOp::kAvg ? kNcclAvg : kNcclSum;
}

// Slices of a member's input and output: 0 where it has none, 1 where its payload is one.
int InSlices(const Member& member, int size) {
  const Call& call = *member.call;
  if (call.kind == CallKind::kRecv) return 0;
  if (call.kind == CallKind::kBroadcast) return call.root == member.rank ? 1 : 0;
  return call.kind == CallKind::kReduceScatter || call.kind == CallKind::kAllToAll ? size : 1;
}

int OutSlices(const Member& member, int size) {
  const CallKind kind = member.call->kind;
  if (kind == CallKind::kSend) return 0;
  return kind == CallKind::kAllGather || kind == CallKind::kAllToAll ? size : 1;
}

class PieceMove {
 public:
  PieceMove(Api api, const CollectiveOptions& options, std::span<const Member> members,
            int64_t piece)
      : api_(api),
        options_(options),
        members_(members),
        call_(*members.front().call),
        size_(options.group_size) {
    const Pieces pieces = PiecesOf(call_, size_);
    unit_bytes_ = pieces.unit_count * element_bytes();
    begin_bytes_ = piece * pieces.piece_count * element_bytes();
    count_ = std::min(pieces.piece_count, pieces.unit_count - piece * pieces.piece_count);
    bytes_ = count_ * element_bytes();
    // Each rank's share of an AllReduce; the last ones are padded.
    slice_count_ = call_.kind == CallKind::kAllReduce ? (count_ + size_ - 1) / size_ : count_;
    slice_bytes_ = slice_count_ * element_bytes();
  }

  absl::Status Run() {
    for (const Member& member : members_) SUMONCE_RETURN_IF_ERROR(StageIn(member));
    SUMONCE_RETURN_IF_ERROR(Communicate());
    for (const Member& member : members_) SUMONCE_RETURN_IF_ERROR(StageOut(member));
    SUMONCE_RETURN_IF_ERROR(AwaitStreams());
    for (const Member& member : members_) CopyOut(member);
    return absl::OkStatus();
  }

 private:
  int64_t element_bytes() const { return SizeOf(Payload(call_).dtype); }

  absl::Status StageIn(const Member& member);
  absl::Status StageOut(const Member& member);
  void CopyOut(const Member& member) const;
  absl::Status Communicate();
  absl::Status Reduce();
  absl::Status ReduceOrdered();
  absl::Status Exchange(bool into_gathered);
  absl::Status AwaitStreams();

  template <typename Enqueue>
  absl::Status Grouped(const Enqueue& enqueue) {
    return InGroup(api_, members_, options_.limits, enqueue);
  }

  Api api_;
  const CollectiveOptions& options_;
  std::span<const Member> members_;
  const Call& call_;
  int size_;
  int64_t unit_bytes_ = 0;   // between slices of the user's buffers
  int64_t begin_bytes_ = 0;  // of the piece, in each slice
  int64_t count_ = 0;        // of the piece
  int64_t bytes_ = 0;
  int64_t slice_count_ = 0;
  int64_t slice_bytes_ = 0;
};

absl::Status PieceMove::StageIn(const Member& member) {
  DeviceRank& device = *member.device;
  const int64_t all = size_ * slice_bytes_;
  const int in_slices = InSlices(member, size_);
  SUMONCE_RETURN_IF_ERROR(device.Reserve(all, all, all, all));
  const char* source = static_cast<const char*>(member.call->in.data) + begin_bytes_;
  for (int slice = 0; slice < in_slices; ++slice)
    std::memcpy(device.host() + slice * bytes_, source + slice * unit_bytes_, bytes_);
  int64_t staged = in_slices * bytes_;
  if (call_.kind == CallKind::kAllReduce) {
    std::memset(device.host() + staged, 0, all - staged);
    staged = all;
  }
  if (staged == 0) return absl::OkStatus();
  SUMONCE_RETURN_IF_ERROR(device.Enter());
  return device.Cuda(api_.cuda.MemcpyAsync(device.in(), device.host(), staged,
                                           CopyKind::kHostToDevice, device.stream()),
                     "cudaMemcpyAsync to the device");
}

absl::Status PieceMove::StageOut(const Member& member) {
  DeviceRank& device = *member.device;
  const int64_t staged = OutSlices(member, size_) * bytes_;
  if (staged == 0) return absl::OkStatus();
  SUMONCE_RETURN_IF_ERROR(device.Enter());
  return device.Cuda(api_.cuda.MemcpyAsync(device.host(), device.out(), staged,
                                           CopyKind::kDeviceToHost, device.stream()),
                     "cudaMemcpyAsync from the device");
}

void PieceMove::CopyOut(const Member& member) const {
  char* target = static_cast<char*>(member.call->out.data) + begin_bytes_;
  for (int slice = 0; slice < OutSlices(member, size_); ++slice)
    std::memcpy(target + slice * unit_bytes_, member.device->host() + slice * bytes_, bytes_);
}

// What only moves travels as bytes: no dtype is lost on NCCL.
absl::Status PieceMove::Communicate() {
  switch (call_.kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduceScatter:
      return options_.native_sums ? Reduce() : ReduceOrdered();
    case CallKind::kAllToAll:
      return Exchange(false);
    case CallKind::kAllGather:
      return Grouped([this](const Member& m) {
        return m.device->Nccl(api_.nccl.AllGather(m.device->in(), m.device->out(), bytes_,
                                                  kNcclUint8, m.comm, m.device->stream()),
                              "ncclAllGather");
      });
    case CallKind::kBroadcast:
      return Grouped([this](const Member& m) {
        return m.device->Nccl(
            api_.nccl.Broadcast(m.device->in(), m.device->out(), bytes_, kNcclUint8, call_.root,
                                m.comm, m.device->stream()),
            "ncclBroadcast");
      });
    default:
      return Grouped([this](const Member& m) {
        if (m.call->kind == CallKind::kSend) {
          return m.device->Nccl(api_.nccl.Send(m.device->in(), bytes_, kNcclUint8, m.call->root,
                                               m.comm, m.device->stream()),
                                "ncclSend");
        }
        return m.device->Nccl(api_.nccl.Recv(m.device->out(), bytes_, kNcclUint8, m.call->root,
                                             m.comm, m.device->stream()),
                              "ncclRecv");
      });
  }
}

absl::Status PieceMove::Reduce() {
  const NcclDataType type = NcclTypeOf(call_.out.dtype);
  const NcclRedOp op = NcclOpOf(call_.op);
  return Grouped([&](const Member& m) {
    if (call_.kind == CallKind::kAllReduce) {
      return m.device->Nccl(api_.nccl.AllReduce(m.device->in(), m.device->out(), count_, type, op,
                                                m.comm, m.device->stream()),
                            "ncclAllReduce");
    }
    return m.device->Nccl(api_.nccl.ReduceScatter(m.device->in(), m.device->out(), count_, type, op,
                                                  m.comm, m.device->stream()),
                          "ncclReduceScatter");
  });
}

absl::Status PieceMove::ReduceOrdered() {
  SUMONCE_RETURN_IF_ERROR(Exchange(true));
  const bool gather = call_.kind == CallKind::kAllReduce;
  for (const Member& m : members_) {
    SUMONCE_RETURN_IF_ERROR(m.device->Enter());
    // The sum of an AllReduce may lie on the input: the exchange before it has read that.
    SUMONCE_RETURN_IF_ERROR(m.device->Cuda(
        api_.cuda.OrderedSum(call_.out.dtype, call_.op, m.device->gathered(), size_, slice_count_,
                             gather ? m.device->in() : m.device->out(), m.device->stream()),
        "the ordered sum's launch"));
  }
  if (!gather) return absl::OkStatus();
  return Grouped([this](const Member& m) {
    return m.device->Nccl(api_.nccl.AllGather(m.device->in(), m.device->out(), slice_bytes_,
                                              kNcclUint8, m.comm, m.device->stream()),
                          "ncclAllGather");
  });
}

// Slice k of each rank to rank k. Sends and receives in one group, as every version of NCCL has
// them.
absl::Status PieceMove::Exchange(bool into_gathered) {
  return Grouped([&](const Member& m) -> absl::Status {
    char* target = into_gathered ? m.device->gathered() : m.device->out();
    for (int peer = 0; peer < size_; ++peer) {
      SUMONCE_RETURN_IF_ERROR(
          m.device->Nccl(api_.nccl.Send(m.device->in() + peer * slice_bytes_, slice_bytes_,
                                        kNcclUint8, peer, m.comm, m.device->stream()),
                         "ncclSend"));
      SUMONCE_RETURN_IF_ERROR(
          m.device->Nccl(api_.nccl.Recv(target + peer * slice_bytes_, slice_bytes_, kNcclUint8,
                                        peer, m.comm, m.device->stream()),
                         "ncclRecv"));
    }
    return absl::OkStatus();
  });
}

absl::Status PieceMove::AwaitStreams() {
  Patience patience(api_.cuda, options_.limits.time_limit_us);
  std::vector<int> late;
  do {
    late.clear();
    for (const Member& member : members_) {
      bool idle = false;
      SUMONCE_RETURN_IF_ERROR(member.device->Enter());
      SUMONCE_RETURN_IF_ERROR(member.device->Query(idle));
      if (idle) continue;
      int state = kNcclSuccess;
      SUMONCE_RETURN_IF_ERROR(member.device->Nccl(api_.nccl.CommGetAsyncError(member.comm, &state),
                                                  "ncclCommGetAsyncError"));
      SUMONCE_RETURN_IF_ERROR(member.device->Nccl(state, "an operation under way"));
      late.push_back(member.device->world_rank());
    }
    if (late.empty()) return absl::OkStatus();
    if (options_.limits.interrupted) SUMONCE_RETURN_IF_ERROR(options_.limits.interrupted());
  } while (patience.Pause());
  return RankLostError(absl::StrCat(RanksInWords(late), " did not finish within ",
                                    options_.limits.time_limit_us / 1000, " ms"));
}

}  // namespace

Pieces PiecesOf(const Call& call, int size) {
  if (!HasPayload(call.kind)) return {};
  const int64_t slices = call.kind == CallKind::kReduceScatter ||
                                 call.kind == CallKind::kAllGather ||
                                 call.kind == CallKind::kAllToAll
                             ? size
                             : 1;
  // Payload is the smaller buffer: of an AllToAll it holds all slices, else one.
  const int64_t payload = Payload(call).count;
  return {.unit_count = call.kind == CallKind::kAllToAll ? payload / size : payload,
          .piece_count = std::max<int64_t>(1, kPieceBytes / slices / SizeOf(Payload(call).dtype))};
}

absl::Status MovePiece(Api api, const CollectiveOptions& options, std::span<const Member> members,
                       int64_t piece) {
  return PieceMove(api, options, members, piece).Run();
}

absl::Status InGroup(Api api, std::span<const Member> members, const WaitLimits& limits,
                     const std::function<absl::Status(const Member&)>& enqueue) {
  const DeviceRank& first = *members.front().device;
  SUMONCE_RETURN_IF_ERROR(first.Nccl(api.nccl.GroupStart(), "ncclGroupStart"));
  absl::Status status;
  for (const Member& member : members) {
    status = member.device->Enter();
    if (status.ok()) status = enqueue(member);
    if (!status.ok()) break;
  }
  // A group that was opened is closed, whatever happened inside.
  status.Update(first.Nccl(api.nccl.GroupEnd(), "ncclGroupEnd"));
  SUMONCE_RETURN_IF_ERROR(status);
  return AwaitComms(api, members, limits, "to accept the calls of a group");
}

absl::Status AwaitComms(Api api, std::span<const Member> members, const WaitLimits& limits,
                        const char* what) {
  Patience patience(api.cuda, limits.time_limit_us);
  std::vector<int> late;
  do {
    late.clear();
    for (const Member& member : members) {
      if (member.comm == nullptr) continue;
      int state = kNcclSuccess;
      SUMONCE_RETURN_IF_ERROR(member.device->Nccl(api.nccl.CommGetAsyncError(member.comm, &state),
                                                  "ncclCommGetAsyncError"));
      SUMONCE_RETURN_IF_ERROR(member.device->Nccl(state, what));
      if (state == kNcclInProgress) late.push_back(member.device->world_rank());
    }
    if (late.empty()) return absl::OkStatus();
    if (limits.interrupted) SUMONCE_RETURN_IF_ERROR(limits.interrupted());
  } while (patience.Pause());
  return RankLostError(absl::StrCat("NCCL did not bring ", RanksInWords(late), " ", what,
                                    " within ", limits.time_limit_us / 1000, " ms"));
}

}  // namespace sumonce::nccl

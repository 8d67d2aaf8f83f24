#include "comm/nccl/device_rank.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/errors.h"

namespace sumonce::nccl {

absl::Status DeviceRank::Open() {
  SUMONCE_RETURN_IF_ERROR(Enter());
  return Cuda(api_.cuda.StreamCreateNonBlocking(&stream_), "cudaStreamCreateWithFlags");
}

absl::Status DeviceRank::Reserve(int64_t host_bytes, int64_t in_bytes, int64_t out_bytes,
                                 int64_t gathered_bytes) {
  SUMONCE_RETURN_IF_ERROR(Enter());
  SUMONCE_RETURN_IF_ERROR(Grow(host_, host_bytes));
  SUMONCE_RETURN_IF_ERROR(Grow(in_, in_bytes));
  SUMONCE_RETURN_IF_ERROR(Grow(out_, out_bytes));
  return Grow(gathered_, gathered_bytes);
}

absl::Status DeviceRank::Grow(Block& block, int64_t bytes) {
  if (bytes <= block.bytes) return absl::OkStatus();
  SUMONCE_RETURN_IF_ERROR(Release(block));
  // Twice as much each time: a run of growing payloads allocates few times.
  bytes = std::max(bytes, 2 * block.bytes);
  SUMONCE_RETURN_IF_ERROR(block.pinned
                              ? Cuda(api_.cuda.MallocHost(&block.data, bytes), "cudaMallocHost")
                              : Cuda(api_.cuda.Malloc(&block.data, bytes), "cudaMalloc"));
  block.bytes = bytes;
  return absl::OkStatus();
}

absl::Status DeviceRank::Release(Block& block) {
  if (block.data == nullptr) return absl::OkStatus();
  void* data = block.data;
  block.data = nullptr;
  block.bytes = 0;
  return block.pinned ? Cuda(api_.cuda.FreeHost(data), "cudaFreeHost")
                      : Cuda(api_.cuda.Free(data), "cudaFree");
}

absl::Status DeviceRank::Close(int64_t limit_us) {
  absl::Status first = Enter();
  if (stream_ != nullptr) {
    bool idle = false;
    Patience patience(api_.cuda, limit_us);
    while (!idle) {
      const absl::Status queried = Query(idle);
      first.Update(queried);
      // A stream that cannot be asked, or never ends: freeing what it may still use is worse than
      // keeping it.
      if (!idle && queried.ok() && !patience.Pause()) {
        first.Update(RankLostError(
            absl::StrCat(Where(), ": the stream did not come to rest; its memory is kept")));
        return first;
      }
      if (!queried.ok()) break;
    }
    first.Update(Cuda(api_.cuda.StreamDestroy(stream_), "cudaStreamDestroy"));
    stream_ = nullptr;
  }
  for (Block* block : {&host_, &in_, &out_, &gathered_}) first.Update(Release(*block));
  return first;
}

absl::Status DeviceRank::Enter() { return Cuda(api_.cuda.SetDevice(device_), "cudaSetDevice"); }

absl::Status DeviceRank::Query(bool& idle) {
  const int code = api_.cuda.StreamQuery(stream_);
  idle = code == kCudaSuccess;
  return code == kCudaErrorNotReady ? absl::OkStatus() : Cuda(code, "cudaStreamQuery");
}

std::string DeviceRank::Where() const {
  return absl::StrCat("rank ", world_rank_, " on device ", device_);
}

absl::Status DeviceRank::Cuda(int code, const char* call) const {
  if (code == kCudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(Where(), ": ", call, ": ",
                                             api_.cuda.GetErrorString(code), " (",
                                             api_.cuda.GetErrorName(code), ")"));
}

absl::Status DeviceRank::Nccl(int code, const char* call) const {
  if (code == kNcclSuccess || code == kNcclInProgress) return absl::OkStatus();
  const char* detail = api_.nccl.GetLastError();
  std::string message = absl::StrCat(Where(), ": ", call, ": ", api_.nccl.GetErrorString(code),
                                     " (", NcclResultName(code), ")");
  if (detail != nullptr && detail[0] != '\0') absl::StrAppend(&message, ": ", detail);
  return code == kNcclRemoteError ? RankLostError(message) : absl::UnavailableError(message);
}

absl::Status Prefixed(const absl::Status& status, const std::string& prefix) {
  absl::Status longer(status.code(), absl::StrCat(prefix, status.message()));
  status.ForEachPayload([&longer](absl::string_view url, const absl::Cord& payload) {
    longer.SetPayload(url, payload);
  });
  return longer;
}

bool Patience::Pause() {
  constexpr int64_t kYields = 50;
  constexpr int64_t kPauseUs = 100;
  if (++pauses_ <= kYields) {
    cuda_.Pause(0);
    return true;
  }
  if (spent_us_ >= limit_us_) return false;
  cuda_.Pause(kPauseUs);
  spent_us_ += kPauseUs;
  return true;
}

}  // namespace sumonce::nccl

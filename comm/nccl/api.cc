#include "comm/nccl/api.h"

namespace sumonce::nccl {

const char* NcclResultName(int code) {
  static constexpr const char* kNames[] = {
      "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
      "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};
  return code >= 0 && code < kNcclNumResults ? kNames[code] : "unknown NCCL code";
}

}  // namespace sumonce::nccl

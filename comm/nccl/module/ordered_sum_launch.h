// Starts the ordered sum on a stream; the one thing that is compiled for devices.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace sumonce {
enum class ReduceOp : uint8_t;  // comm/communicator.h, which the device compiler need not read
}

namespace sumonce::nccl {

// in: [ranks, count], out: [count], on the device of `stream`, which is the thread's. At least one
// element and rank. float64, float32, bfloat16, int64, int32; AVG of floats only. The launch's
// code; what goes wrong in the kernel shows at the stream.
cudaError_t LaunchOrderedSum(DType dtype, ReduceOp op, const void* in, int ranks, int64_t count,
                             void* out, cudaStream_t stream);

}  // namespace sumonce::nccl

// The ordered sum on a device: comm/nccl/ordered_sum.h's arithmetic, an element per thread and
// stride. Neighbouring threads read neighbouring elements of each rank's slice.
#include "comm/nccl/module/ordered_sum_launch.h"
#include "comm/nccl/ordered_sum.h"

namespace sumonce::nccl {
namespace {

// in: [ranks, count], out: [count]
template <typename Arithmetic>
__global__ void OrderedSumKernel(OrderedOp op, const typename Arithmetic::Element* in, int ranks,
                                 int64_t count, typename Arithmetic::Element* out) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    out[i] = OrderedElement<Arithmetic>(op, in, ranks, count, i);
  }
}

template <typename Arithmetic>
cudaError_t Launch(ReduceOp op, const void* in, int ranks, int64_t count, void* out,
                   cudaStream_t stream) {
  using Element = typename Arithmetic::Element;
  constexpr int64_t kThreads = 256;
  constexpr int64_t kMaxBlocks = 4096;
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  OrderedSumKernel<Arithmetic>
      <<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kThreads, 0, stream>>>(
          static_cast<OrderedOp>(op), static_cast<const Element*>(in), ranks, count,
          static_cast<Element*>(out));
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchOrderedSum(DType dtype, ReduceOp op, const void* in, int ranks, int64_t count,
                             void* out, cudaStream_t stream) {
  switch (dtype) {
    case DType::kFloat64:
      return Launch<Float64Arithmetic>(op, in, ranks, count, out, stream);
    case DType::kFloat32:
      return Launch<Float32Arithmetic>(op, in, ranks, count, out, stream);
    case DType::kBFloat16:
      return Launch<BFloat16Arithmetic>(op, in, ranks, count, out, stream);
    case DType::kInt64:
      return Launch<Int64Arithmetic>(op, in, ranks, count, out, stream);
    case DType::kInt32:
      return Launch<Int32Arithmetic>(op, in, ranks, count, out, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace sumonce::nccl

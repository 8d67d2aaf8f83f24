#include "comm/reduce.h"

#include <atomic>

#include "base/status.h"
#include "comm/reduce_kernels.h"

namespace sumonce {
namespace {

using internal::ReduceKernels;

const ReduceKernels* KernelsOf(ReduceKernel kernel) {
  switch (kernel) {
    case ReduceKernel::kBaseline:
      return internal::BaselineReduceKernels();
    case ReduceKernel::kAvx2:
      return internal::Avx2ReduceKernels();
    case ReduceKernel::kAvx512:
      return internal::Avx512ReduceKernels();
  }
  return nullptr;
}

// All kernels give the same bits, so a change while others reduce is harmless.
std::atomic<const ReduceKernels*>& ActiveKernels() {
  static std::atomic<const ReduceKernels*> active = KernelsOf(BestReduceKernel());
  return active;
}

ReduceKernels::Function FunctionOf(const ReduceKernels& kernels, DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return kernels.float64;
    case DType::kFloat32:
      return kernels.float32;
    case DType::kBFloat16:
      return kernels.bfloat16;
    case DType::kInt64:
      return kernels.int64;
    case DType::kInt32:
      return kernels.int32;
    default:
      return nullptr;
  }
}

}  // namespace

void ReduceInRankOrder(DType dtype, ReduceOp op, std::span<const void* const> in, int64_t count,
                       std::span<void* const> out) {
  const ReduceKernels::Function reduce =
      FunctionOf(*ActiveKernels().load(std::memory_order_acquire), dtype);
  SUMONCE_CHECK(reduce != nullptr) << "no reduction of " << Name(dtype);
  reduce({.op = op,
          .in = in.data(),
          .ranks = static_cast<int>(in.size()),
          .out = out.data(),
          .outs = static_cast<int>(out.size()),
          .count = count});
}

std::string_view Name(ReduceKernel kernel) {
  switch (kernel) {
    case ReduceKernel::kBaseline:
      return "baseline";
    case ReduceKernel::kAvx2:
      return "avx2";
    case ReduceKernel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool HasReduceKernel(ReduceKernel kernel) { return KernelsOf(kernel) != nullptr; }

ReduceKernel BestReduceKernel() {
  if (HasReduceKernel(ReduceKernel::kAvx512)) return ReduceKernel::kAvx512;
  return HasReduceKernel(ReduceKernel::kAvx2) ? ReduceKernel::kAvx2 : ReduceKernel::kBaseline;
}

void ForceReduceKernel(ReduceKernel kernel) {
  SUMONCE_CHECK(HasReduceKernel(kernel)) << "this CPU has no " << Name(kernel);
  ActiveKernels().store(KernelsOf(kernel), std::memory_order_release);
}

}  // namespace sumonce

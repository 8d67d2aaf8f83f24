#include "comm/reduce.h"

#include <algorithm>
#include <type_traits>

#include "base/status.h"

namespace sumonce {
namespace {

// Elements reduced at a time in a buffer on the stack: small enough for the first-level cache.
constexpr int64_t kBlock = 512;

template <typename T>
T Widen(T value) {
  return value;
}
float Widen(BFloat16 value) { return value.ToFloat(); }

template <typename T, typename Wide>
T Narrow(Wide value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16::FromFloat(value);
  } else {
    return value;
  }
}

// Signed overflow wraps, as on the devices that this stands for.
template <typename Wide>
Wide Sum(Wide a, Wide b) {
  if constexpr (std::is_integral_v<Wide>) {
    using Unsigned = std::make_unsigned_t<Wide>;
    return static_cast<Wide>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <typename Wide>
Wide Max(Wide a, Wide b) {
  return b > a || b != b ? b : a;
}

template <typename T, typename Wide>
void Accumulate(ReduceOp op, const T* in, int64_t count, Wide* total) {
  if (op == ReduceOp::kMax) {
    for (int64_t i = 0; i < count; ++i) total[i] = Max<Wide>(total[i], Widen(in[i]));
  } else {
    for (int64_t i = 0; i < count; ++i) total[i] = Sum<Wide>(total[i], Widen(in[i]));
  }
}

template <typename T>
void Reduce(ReduceOp op, const std::vector<const void*>& in, int64_t count,
            const std::vector<void*>& out) {
  using Wide = decltype(Widen(T{}));
  Wide total[kBlock];
  T rounded[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(in[0]) + begin;
    for (int64_t i = 0; i < block; ++i) total[i] = Widen(first[i]);
    for (size_t r = 1; r < in.size(); ++r) {
      Accumulate(op, static_cast<const T*>(in[r]) + begin, block, total);
    }
    if (op == ReduceOp::kAvg) {
      for (int64_t i = 0; i < block; ++i) total[i] = total[i] / static_cast<Wide>(in.size());
    }
    for (int64_t i = 0; i < block; ++i) rounded[i] = Narrow<T, Wide>(total[i]);
    for (void* target : out) std::copy_n(rounded, block, static_cast<T*>(target) + begin);
  }
}

}  // namespace

void ReduceInRankOrder(DType dtype, ReduceOp op, const std::vector<const void*>& in, int64_t count,
                       const std::vector<void*>& out) {
  switch (dtype) {
    case DType::kFloat64:
      return Reduce<double>(op, in, count, out);
    case DType::kFloat32:
      return Reduce<float>(op, in, count, out);
    case DType::kBFloat16:
      return Reduce<BFloat16>(op, in, count, out);
    case DType::kInt64:
      return Reduce<int64_t>(op, in, count, out);
    case DType::kInt32:
      return Reduce<int32_t>(op, in, count, out);
    default:
      SUMONCE_CHECK(false) << "no reduction of " << Name(dtype);
  }
}

}  // namespace sumonce

// The arithmetic of the ordered sum, one element at a time: the same function runs in the kernel
// (comm/nccl/module/ordered_sum.cu) and on the host, where a test holds it to comm/reduce.h bit for
// bit.
//
// Devices differ from x86 in one thing: the NaN that an operation returns has always the same bits
// there, and here those of the operand it came from. So sums say which NaN they mean. Where both
// terms are NaN it is the first's. The host builds without contraction and fast-math; the kernel
// too (--fmad=false, no -ftz, no approximate division), so that every other operation is IEEE
// 754's.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define SUMONCE_HOST_DEVICE __host__ __device__
#else
#define SUMONCE_HOST_DEVICE
#endif

namespace sumonce::nccl {

// The value of comm/communicator.h's ReduceOp, which device code does not see.
enum OrderedOp : int { kOrderedSum = 0, kOrderedAvg = 1, kOrderedMax = 2 };

template <typename To, typename From>
SUMONCE_HOST_DEVICE inline To BitsAs(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// Bits of a float type: which integer holds them, the bit that makes a NaN quiet, and the NaN that
// an invalid operation (inf - inf) makes on x86.
template <typename T>
struct FloatBits {};
template <>
struct FloatBits<float> {
  using Word = uint32_t;
  static constexpr Word kQuiet = 0x00400000u;
  static constexpr Word kInvalid = 0xffc00000u;
};
template <>
struct FloatBits<double> {
  using Word = uint64_t;
  static constexpr Word kQuiet = 0x0008000000000000u;
  static constexpr Word kInvalid = 0xfff8000000000000u;
};

template <typename T>
SUMONCE_HOST_DEVICE inline T QuietNan(T nan) {
  using Word = typename FloatBits<T>::Word;
  return BitsAs<T>(static_cast<Word>(BitsAs<Word>(nan) | FloatBits<T>::kQuiet));
}

// One dtype's way to be reduced: Wide is what it is accumulated in.
template <typename T>
struct FloatArithmetic {
  using Element = T;
  using Wide = T;
  SUMONCE_HOST_DEVICE static Wide Widen(Element value) { return value; }
  SUMONCE_HOST_DEVICE static Element Narrow(Wide value) { return value; }
  SUMONCE_HOST_DEVICE static Wide Add(Wide a, Wide b) {
    const Wide sum = a + b;
    if (sum == sum) return sum;
    if (a != a) return QuietNan(a);
    if (b != b) return QuietNan(b);
    return BitsAs<T>(FloatBits<T>::kInvalid);
  }
  SUMONCE_HOST_DEVICE static Wide Max(Wide a, Wide b) { return b > a || b != b ? b : a; }
  SUMONCE_HOST_DEVICE static Wide Divide(Wide sum, int ranks) {
    return sum == sum ? sum / static_cast<Wide>(ranks) : QuietNan(sum);
  }
};

// Element is the bfloat16's 16 bits; base/dtype.h says how it is rounded.
struct BFloat16Arithmetic : FloatArithmetic<float> {
  using Element = uint16_t;
  SUMONCE_HOST_DEVICE static float Widen(uint16_t bits) {
    return BitsAs<float>(static_cast<uint32_t>(bits) << 16);
  }
  SUMONCE_HOST_DEVICE static uint16_t Narrow(float value) {
    const uint32_t word = BitsAs<uint32_t>(value);
    if (value != value) return static_cast<uint16_t>((word >> 16) | 0x40u);
    return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
};

// Sums wrap. There is no average of integers.
template <typename T, typename Unsigned>
struct IntegerArithmetic {
  using Element = T;
  using Wide = T;
  SUMONCE_HOST_DEVICE static Wide Widen(Element value) { return value; }
  SUMONCE_HOST_DEVICE static Element Narrow(Wide value) { return value; }
  SUMONCE_HOST_DEVICE static Wide Add(Wide a, Wide b) {
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  }
  SUMONCE_HOST_DEVICE static Wide Max(Wide a, Wide b) { return b > a ? b : a; }
  SUMONCE_HOST_DEVICE static Wide Divide(Wide sum, int) { return sum; }
};

using Float64Arithmetic = FloatArithmetic<double>;
using Float32Arithmetic = FloatArithmetic<float>;
using Int64Arithmetic = IntegerArithmetic<int64_t, uint64_t>;
using Int32Arithmetic = IntegerArithmetic<int32_t, uint32_t>;

// Element `index` of the reduction over ranks, in ascending order, of in: [ranks, count].
template <typename Arithmetic>
SUMONCE_HOST_DEVICE inline typename Arithmetic::Element OrderedElement(
    OrderedOp op, const typename Arithmetic::Element* in, int ranks, int64_t count, int64_t index) {
  typename Arithmetic::Wide total = Arithmetic::Widen(in[index]);
  for (int rank = 1; rank < ranks; ++rank) {
    const typename Arithmetic::Wide term = Arithmetic::Widen(in[rank * count + index]);
    total = op == kOrderedMax ? Arithmetic::Max(total, term) : Arithmetic::Add(total, term);
  }
  if (op == kOrderedAvg) total = Arithmetic::Divide(total, ranks);
  return Arithmetic::Narrow(total);
}

}  // namespace sumonce::nccl

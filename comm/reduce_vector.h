// Internal to comm/reduce*: the reduction in vectors of kBytes, to be compiled once for each
// instruction set. Everything is local to the file that includes it, so that the linker cannot give
// one CPU the code of another.
//
// Every element goes through the same operations, wherever it stands: the last ones of a range are
// put into a vector of their own. So the width of a vector does not show in the bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "comm/reduce_kernels.h"

namespace sumonce::internal {
namespace {

template <typename T, int kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};

// Elements that are summed in their own type.
template <typename T, int kBytes>
struct PlainLanes {
  using Stored = T;
  using Scalar = T;
  using Vector = typename VectorOf<T, kBytes>::Type;
  using Memory = Vector;
  static constexpr int kCount = kBytes / sizeof(T);

  static Vector Widen(Memory stored) { return stored; }
  static Memory Narrow(Vector sum) { return sum; }
};

// bfloat16, summed in float32 and rounded once as BFloat16::FromFloat does.
template <int kBytes>
struct BFloat16Lanes {
  using Stored = uint16_t;
  using Scalar = float;
  using Vector = typename VectorOf<float, kBytes>::Type;
  using Memory = typename VectorOf<uint16_t, kBytes / 2>::Type;
  using Words = typename VectorOf<uint32_t, kBytes>::Type;
  static constexpr int kCount = kBytes / sizeof(float);

  static Vector Widen(Memory stored) {
    return reinterpret_cast<Vector>(__builtin_convertvector(stored, Words) << 16);
  }
  static Memory Narrow(Vector sum) {
    const Words word = reinterpret_cast<Words>(sum);
    const Words rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const Words quiet_nan = (word >> 16) | 0x40u;
    return __builtin_convertvector(sum != sum ? quiet_nan : rounded, Memory);
  }
};

template <typename Lanes>
typename Lanes::Vector Load(const void* from, int64_t element) {
  typename Lanes::Memory stored;
  std::memcpy(&stored, static_cast<const typename Lanes::Stored*>(from) + element, sizeof(stored));
  return Lanes::Widen(stored);
}

template <typename Lanes>
void Store(void* to, int64_t element, typename Lanes::Memory stored) {
  std::memcpy(static_cast<typename Lanes::Stored*>(to) + element, &stored, sizeof(stored));
}

template <ReduceOp kOp, typename Lanes>
typename Lanes::Vector Combine(typename Lanes::Vector a, typename Lanes::Vector b) {
  if constexpr (kOp == ReduceOp::kMax) {
    return ((b > a) | (b != b)) ? b : a;
  } else if constexpr (std::is_integral_v<typename Lanes::Scalar>) {
    // Signed overflow wraps, as on the devices that this stands for.
    using Unsigned = typename VectorOf<std::make_unsigned_t<typename Lanes::Scalar>,
                                       sizeof(typename Lanes::Vector)>::Type;
    return reinterpret_cast<typename Lanes::Vector>(reinterpret_cast<Unsigned>(a) +
                                                    reinterpret_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <ReduceOp kOp, typename Lanes>
typename Lanes::Memory Finish(typename Lanes::Vector total, int ranks) {
  if constexpr (kOp == ReduceOp::kAvg) {
    return Lanes::Narrow(total / static_cast<typename Lanes::Scalar>(ranks));
  } else {
    return Lanes::Narrow(total);
  }
}

// kVectors vectors from `element` on: all are read before any is written, as outputs may be inputs.
template <ReduceOp kOp, typename Lanes, int kVectors>
void ReduceVectors(const ReduceOperands& operands, int64_t element) {
  typename Lanes::Vector total[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    total[v] = Load<Lanes>(operands.in[0], element + v * Lanes::kCount);
  }
  for (int rank = 1; rank < operands.ranks; ++rank) {
    const void* const in = operands.in[rank];
    for (int v = 0; v < kVectors; ++v) {
      total[v] = Combine<kOp, Lanes>(total[v], Load<Lanes>(in, element + v * Lanes::kCount));
    }
  }
  typename Lanes::Memory result[kVectors];
  for (int v = 0; v < kVectors; ++v) result[v] = Finish<kOp, Lanes>(total[v], operands.ranks);
  for (int k = 0; k < operands.outs; ++k) {
    void* const out = operands.out[k];
    for (int v = 0; v < kVectors; ++v) Store<Lanes>(out, element + v * Lanes::kCount, result[v]);
  }
}

// The last elements, fewer than a vector holds.
template <ReduceOp kOp, typename Lanes>
void ReduceTail(const ReduceOperands& operands, int64_t element) {
  using Stored = typename Lanes::Stored;
  const size_t bytes = (operands.count - element) * sizeof(Stored);
  const auto load = [&](int rank) {
    Stored first[Lanes::kCount] = {};
    std::memcpy(first, static_cast<const Stored*>(operands.in[rank]) + element, bytes);
    return Load<Lanes>(first, 0);
  };
  typename Lanes::Vector total = load(0);
  for (int rank = 1; rank < operands.ranks; ++rank) total = Combine<kOp, Lanes>(total, load(rank));
  const typename Lanes::Memory result = Finish<kOp, Lanes>(total, operands.ranks);
  for (int k = 0; k < operands.outs; ++k) {
    std::memcpy(static_cast<Stored*>(operands.out[k]) + element, &result, bytes);
  }
}

template <ReduceOp kOp, typename Lanes>
void ReduceRange(const ReduceOperands& operands) {
  constexpr int kVectors = 4;
  int64_t element = 0;
  for (; element + kVectors * Lanes::kCount <= operands.count; element += kVectors * Lanes::kCount)
    ReduceVectors<kOp, Lanes, kVectors>(operands, element);
  for (; element + Lanes::kCount <= operands.count; element += Lanes::kCount)
    ReduceVectors<kOp, Lanes, 1>(operands, element);
  if (element < operands.count) ReduceTail<kOp, Lanes>(operands, element);
}

template <typename Lanes>
void Reduce(const ReduceOperands& operands) {
  switch (operands.op) {
    case ReduceOp::kSum:
      return ReduceRange<ReduceOp::kSum, Lanes>(operands);
    case ReduceOp::kAvg:
      return ReduceRange<ReduceOp::kAvg, Lanes>(operands);
    case ReduceOp::kMax:
      return ReduceRange<ReduceOp::kMax, Lanes>(operands);
  }
}

template <int kBytes>
constexpr ReduceKernels kReduceKernels = {
    Reduce<PlainLanes<double, kBytes>>, Reduce<PlainLanes<float, kBytes>>,
    Reduce<BFloat16Lanes<kBytes>>, Reduce<PlainLanes<int64_t, kBytes>>,
    Reduce<PlainLanes<int32_t, kBytes>>};

}  // namespace
}  // namespace sumonce::internal
